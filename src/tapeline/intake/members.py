"""The files in a zip or tar archive, one after the other, in bounded memory.

Nothing is written to disk: a member's name is data. A name that leads out of the archive, a link,
an encrypted member or an archive inside an archive rejects all of it.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from tapeline.formats.limits import MIB, UnreadableFileError

MEMBERS = 10_000
NAME_BYTES = 4_096
# The directory of a zip archive, and what a tar archive says of one file.
DIRECTORY_BYTES = 2 * MIB
READ_BYTES = MIB
BLOCK = tarfile.BLOCKSIZE
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
OFFICE = "[Content_Types].xml"
DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, ValueError)
FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    name: str
    chunks: Iterator[bytes]


def archive_of(head: bytes) -> str | None:
    """Which archive begins with these bytes."""
    if head.startswith(ZIP):
        return "zip"
    if head[257:262] != b"ustar":
        return None
    try:
        tarfile.TarInfo.frombuf(head[:BLOCK], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return None
    return "tar"


def zip_members(file: BinaryIO) -> Iterator[Member]:
    """The files in a zip archive, in the order of its directory."""
    try:
        with zipfile.ZipFile(_BoundedReads(file)) as archive:
            entries = archive.infolist()
            _check_count(len(entries))
            if any(entry.filename == OFFICE for entry in entries):
                raise UnreadableFileError("it is an Office document; export it as CSV")
            for entry in entries:
                name = _checked(entry.filename)
                if entry.is_dir() or _is_junk(name):
                    continue
                if entry.flag_bits & 1:
                    raise UnreadableFileError(f"its member '{name}' is encrypted")
                if entry.compress_type not in METHODS:
                    raise UnreadableFileError(
                        f"its member '{name}' is not packed with deflate or bzip2"
                    )
                yield Member(name, _zip_content(archive, entry))
    except DAMAGED as error:
        raise UnreadableFileError(f"its zip archive is damaged: {error}") from None


def _zip_content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(entry) as member:
            while chunk := member.read(READ_BYTES):
                yield chunk
    except DAMAGED as error:
        raise UnreadableFileError(f"its zip archive is damaged: {error}") from None


def tar_members(chunks: Iterator[bytes]) -> Iterator[Member]:
    """The files in a tar archive. Each is read, or passed over, before the next."""
    stream, count, said = _Stream(chunks), 0, _Said()
    while (info := stream.entry()) is not None:
        count += 1
        _check_count(count)
        if info.type == tarfile.GNUTYPE_LONGNAME:
            said.name = stream.text(info.size).rstrip(b"\0")
            continue
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            said.read(stream.text(info.size))
            continue
        if info.type == tarfile.XGLTYPE:
            stream.text(info.size)
            continue
        size = info.size if said.size is None else said.size
        name = _checked(info.name if said.name is None else said.name.decode("utf-8", "replace"))
        said = _Said()
        if info.type not in (*FILES, tarfile.DIRTYPE):
            raise UnreadableFileError(f"its member '{name}' is a link or a device")
        content = stream.content(size if info.type in FILES else 0)
        if info.type in FILES and not _is_junk(name):
            yield Member(name, content)
        for _ in content:
            pass  # what a format left of it


class _Said:
    """What extra headers say of the next member."""

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.size: int | None = None

    def read(self, records: bytes) -> None:
        """Records of pax: their length, a space, a name, '=', a value, a line end."""
        while records:
            length, _, _ = records.partition(b" ")
            if not length.isdigit() or not len(length) < int(length[:9]) <= len(records):
                raise UnreadableFileError("its tar archive is damaged: a header cannot be read")
            record, records = records[: int(length)], records[int(length) :]
            name, _, value = record[len(length) + 1 : -1].partition(b"=")
            if name == b"path":
                self.name = value
            elif name == b"size" and value.isdigit():
                self.size = int(value[:19])
            elif name.startswith(b"GNU.sparse"):
                raise UnreadableFileError("its tar archive has a sparse file")


class _Stream:
    """The blocks of a tar archive."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def entry(self) -> tarfile.TarInfo | None:
        """The next header; None at the end of the archive."""
        block = b"".join(self._take(BLOCK))
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            for _ in self._chunks:
                pass  # padding; a compressed archive is checked to its end
            return None
        except (tarfile.TarError, ValueError) as error:
            raise UnreadableFileError(f"its tar archive is damaged: {error}") from None

    def text(self, size: int) -> bytes:
        """What an extra header says."""
        if not 0 <= size <= DIRECTORY_BYTES:
            raise UnreadableFileError(f"its tar archive has a header of {size:,} bytes")
        return b"".join(self.content(size))

    def content(self, size: int) -> Iterator[bytes]:
        """What is in a member, without the padding after it."""
        if size < 0:
            raise UnreadableFileError("its tar archive is damaged: a size below zero")
        yield from self._take(size)
        for _ in self._take(-size % BLOCK):
            pass

    def _take(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._rest:
                chunk = next(self._chunks, None)
                if chunk is None:
                    raise UnreadableFileError("its tar archive ends early")
                self._rest = chunk
            found, self._rest = self._rest[:size], self._rest[size:]
            size -= len(found)
            if found:
                yield found


class _BoundedReads(io.RawIOBase):
    """A file that refuses to be read in one piece: a zip archive says how large that would be."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= DIRECTORY_BYTES:
            here = self._file.tell()
            size = self._file.seek(0, io.SEEK_END) - here if size < 0 else size
            self._file.seek(here)
        if size > DIRECTORY_BYTES:
            raise UnreadableFileError(
                f"the directory of its zip archive is longer than {DIRECTORY_BYTES:,} bytes"
            )
        return self._file.read(size)


def _check_count(count: int) -> None:
    if count > MEMBERS:
        raise UnreadableFileError(f"its archive has more than {MEMBERS:,} members, the limit")


def _checked(name: str) -> str:
    """A member's name, if it is below the archive's own folder."""
    shown = name if name.isprintable() and len(name) < NAME_BYTES else repr(name[:100])
    path = PurePosixPath(name.replace("\\", "/"))
    leads_out = path.is_absolute() or ".." in path.parts or ":" in str(path)[1:2]
    if leads_out or not path.parts or not name.isprintable() or len(name) >= NAME_BYTES:
        raise UnreadableFileError(f"its member {shown} has a name that is not accepted")
    return str(path)


def _is_junk(name: str) -> bool:
    """What archivers and desktops leave behind."""
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))
