"""Reading one delivery: its container, its encoding and its lines, in bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import BinaryIO, Literal, NamedTuple

from tapeline.declare.format import FileLimits, Format, RecordFile
from tapeline.formats.avro_schemas import keep_schema
from tapeline.formats.decoding import FAILS
from tapeline.formats.limits import MIB, IntakeLimits, UnreadableFileError
from tapeline.formats.lines import LF, Lines, lines_of
from tapeline.formats.named import format_of
from tapeline.formats.parquet import MAGIC as PARQUET
from tapeline.intake.compression import MAGIC_BYTES, compression_of, unpacked
from tapeline.intake.content import WRONG_FORMAT, peeked, text_of
from tapeline.intake.members import BLOCK, Member, archive_of, tar_members, zip_members

READ_BYTES = 4 * MIB


@dataclass(frozen=True)
class FileRules:
    """What the files of a source hold, and what becomes of them once they are on the tape."""

    format: str | Format
    keep: Literal["archive", "delete"] = "archive"
    schemas: Path = Path("schemas")  # where those of Avro files are kept
    meta: bool = False  # whether the file of each record goes onto the tape
    members: str = "*"  # which files of an archive are read

    @property
    def written(self) -> Format:
        """The format, whether it was given by its name or as an object."""
        return format_of("the source", self.format, "file")

    def reads_member(self, name: str) -> bool:
        """Whether a file of an archive is read: by its name, or by its path in the archive."""
        return any(fnmatchcase(one, self.members) for one in (name, name.rpartition("/")[2]))


@dataclass(frozen=True)
class TailStart:
    """What came before a delivery that is the tail of an earlier one."""

    lines_before: int = 0
    header: bytes | None = None


class Origin(NamedTuple):
    """What the records of one file share: its header, and which member of an archive it is.

    With `kept` the file goes onto the tape beside each record.
    """

    header: bytes | None = None
    member: str | None = None
    kept: bool = False


class DeliveryReader:
    """One pass over the first `size` bytes of an open file: iterate it for the lines.

    The `header`, a csv's first line or the name of an Avro file's schema, and the `member` of an
    archive are those of the lines given out last; `sha256`, of the bytes as delivered, is known
    after the last ones. Raises UnreadableFileError at what makes the file unreadable.
    """

    def __init__(
        self,
        handle: int,
        size: int,
        form: FileRules,
        limits: IntakeLimits,
        start: TailStart | None = None,
    ) -> None:
        self.header = start.header if start else None
        self.member: str | None = None
        self.sha256 = ""
        self._handle = handle
        self._size = size
        self._form = form
        self._limits = limits
        self._read_bytes = 0
        self.lines_before = start.lines_before if start else 0

    def __iter__(self) -> Iterator[Lines]:
        if self._size > self._limits.file_bytes:
            limit = self._limits.file_bytes
            raise UnreadableFileError(f"it is {self._size:,} bytes long, the limit is {limit:,}")
        return self._counted()

    def _counted(self) -> Iterator[Lines]:
        count = 0
        for file in self._files():
            number = file.lines_before + 1
            for some in self._split(file):
                lines = (
                    some if isinstance(some, Lines) else lines_of(some, number, self.record_bytes)
                )
                if not len(lines):  # a format may have nothing to give out yet
                    continue
                number += len(lines)
                count += len(lines)
                if count > self._limits.file_rows:
                    raise UnreadableFileError(
                        f"it has more than {self._limits.file_rows:,} records, the limit"
                    )
                self.header = file.header
                self.member = file.name if isinstance(file, MemberFile) else None
                yield lines
        self.sha256 = self.sha256 or sha256_of(self._handle, self._size)

    def _files(self) -> Iterator[RecordFile]:
        """The file itself, or those in it if it is an archive."""
        kind = self.archive()
        if kind is None:
            yield self
            return
        if kind == "zip" and compression_of(os.pread(self._handle, MAGIC_BYTES, 0)):
            raise UnreadableFileError("it is a zip archive that was compressed; send the archive")
        left = [self.limits.unpacked_bytes]  # of all members together
        chosen = 0
        for member in zip_members(self.open()) if kind == "zip" else tar_members(self._unpacked()):
            if self._form.reads_member(member.name):
                chosen += 1
                with closing(MemberFile(member, self, left)) as file:
                    yield file
        if not chosen and self._form.members != "*":
            raise UnreadableFileError(f"none of its members is named '{self._form.members}'")

    def archive(self) -> str | None:
        """Which archive the file is, if its format does not read archives as such."""
        if not self._form.written.unpacks:
            return None
        head = os.pread(self._handle, min(BLOCK, self._size), 0)
        if compression_of(head):
            head, _ = peeked(self._unpacked(), BLOCK)
        return archive_of(head)

    def _split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        """What the format makes of a file; what it raises says that the file is not sound."""
        where = f"its member '{file.name}': " if isinstance(file, MemberFile) else ""
        try:
            yield from self._form.written.split(file)
        except UnreadableFileError as error:
            raise UnreadableFileError(f"{where}{error}") from None
        except ValueError as error:
            raise UnreadableFileError(f"{where}{error}") from None
        except FAILS as error:
            raise UnreadableFileError(
                f"{where}it is not {self._form.written.name}: {type(error).__name__}: {error}"
            ) from None

    @property
    def origin(self) -> Origin:
        """Where the lines come from that were given out last."""
        return Origin(self.header, self.member, self._form.meta or self.member is not None)

    @property
    def record_bytes(self) -> int:
        return self._limits.record_bytes

    @property
    def limits(self) -> FileLimits:
        return self._limits.of(self._size)

    def open(self) -> BinaryIO:
        """The file as it was delivered, from its first byte."""
        file = open(self._handle, "rb", closefd=False)  # noqa: SIM115 - the format closes it
        file.seek(0)
        return file

    def keep(self, text: bytes) -> bytes:
        """Keep a text in the books' folder for schemas, once."""
        return keep_schema(self._form.schemas, text).encode()

    def chunks(self) -> Iterator[bytes]:
        """The bytes to split: out of their container, without a byte order mark."""
        magic = os.pread(self._handle, min(4, self._size), 0)
        text = magic == PARQUET != os.pread(self._handle, 4, self._size - 4)
        if magic in WRONG_FORMAT and not text:
            raise UnreadableFileError(WRONG_FORMAT[magic])
        return self.text_of(self._unpacked())

    def text_of(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Content as UTF-8. Raises UnreadableFileError if it is something else."""
        return text_of(chunks, self._form.written.encoding)

    def _unpacked(self) -> Iterator[bytes]:
        return self.once_unpacked(self._raw())

    def once_unpacked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Content out of its compression, if it has one."""
        head, chunks = peeked(chunks, BLOCK)
        kind = compression_of(head)
        if kind is None:
            return chunks
        inside = unpacked(kind, chunks, lambda: self._read_bytes, self._limits)
        head, inside = peeked(inside, BLOCK)
        if inner := compression_of(head):
            raise UnreadableFileError(f"it is {inner} inside {kind}; compress it once")
        return inside

    def _raw(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        self._read_bytes = 0
        for chunk in _chunks(self._handle, self._size):
            digest.update(chunk)
            self._read_bytes += len(chunk)
            yield chunk
        self.sha256 = digest.hexdigest()


class MemberFile:
    """A file in an archive, as a format reads it."""

    def __init__(self, member: Member, archive: DeliveryReader, left: list[int]) -> None:
        self.name = member.name
        self.header: bytes | None = None
        self.lines_before = 0
        self._member = member
        self._archive = archive
        self._left = left
        self._kept: SpooledTemporaryFile[bytes] | None = None

    @property
    def record_bytes(self) -> int:
        return self._archive.record_bytes

    @property
    def limits(self) -> FileLimits:
        return self._archive.limits

    def keep(self, text: bytes) -> bytes:
        return self._archive.keep(text)

    def chunks(self) -> Iterator[bytes]:
        """The content. A second time only if it has no line end: then it was kept."""
        if self._kept is not None:
            self._kept.seek(0)
            return self._archive.text_of(iter(partial(self._kept.read, READ_BYTES), b""))
        head, content = peeked(self._content(), BLOCK)
        if head[:4] in WRONG_FORMAT:
            raise UnreadableFileError(WRONG_FORMAT[head[:4]])
        return self._archive.text_of(self._keeping(content))

    def open(self) -> BinaryIO:
        file = TemporaryFile()  # noqa: SIM115 - the format closes it
        for chunk in self._content():
            file.write(chunk)
        file.seek(0)
        return file

    def close(self) -> None:
        """Let go of what was kept."""
        if self._kept is not None:
            self._kept.close()

    def _content(self) -> Iterator[bytes]:
        return self._limited(self._archive.once_unpacked(self._member.chunks))

    def _keeping(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The content, which is kept until it has a line end: an archive is read only once."""
        kept = self._kept = SpooledTemporaryFile(READ_BYTES)  # noqa: SIM115 - goes with the member
        for chunk in chunks:
            if self._kept is not None and LF in chunk:
                self._kept = None
                kept.close()
            if self._kept is not None:
                self._kept.write(chunk)
            yield chunk

    def _limited(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The content, as far as all members together may go."""
        for chunk in chunks:
            self._left[0] -= len(chunk)
            if self._left[0] < 0:
                limit = self.limits.unpacked_bytes
                raise UnreadableFileError(f"its archive unpacks to more than {limit:,} bytes")
            yield chunk


def sha256_of(handle: int, size: int) -> str:
    """The sha256 of the first `size` bytes of an open file."""
    digest = hashlib.sha256()
    for chunk in _chunks(handle, size):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(handle: int, size: int) -> Iterator[bytes]:
    offset = 0
    while offset < size:
        chunk = os.pread(handle, min(READ_BYTES, size - offset), offset)
        if not chunk:
            raise UnreadableFileError(
                f"it shrank from {size:,} to {offset:,} bytes once it was taken"
            )
        offset += len(chunk)
        yield chunk
