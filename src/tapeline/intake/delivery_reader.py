"""Reading one delivery: its container, its encoding and its lines, in bounded memory."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from tapeline.declare.format import FileLimits, Format
from tapeline.formats.avro_files import MAGIC as AVRO
from tapeline.formats.avro_schemas import keep_schema
from tapeline.formats.decoding import FAILS
from tapeline.formats.limits import MIB, IntakeLimits, UnreadableFileError
from tapeline.formats.lines import Lines, lines_of
from tapeline.formats.named import format_of
from tapeline.formats.parquet import MAGIC as PARQUET

READ_BYTES = 4 * MIB
GZIP = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
HEAD_BYTES = 16
# How files begin that hold no lines intake can cut, and what their sender should know.
FOREIGN = (
    (b"PK\x03\x04", "it is a zip archive; send plain text or gzip"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; send plain text or gzip"),
    (b"\xfd7zXZ\x00", "it is compressed with xz; send plain text or gzip"),
    *((b"BZh%d1AY&SY" % n, "it is compressed with bzip2; send gzip") for n in range(1, 10)),
    (b"\xff\xfe", "it is UTF-16 or UTF-32 text; send UTF-8"),
    (b"\xfe\xff", "it is UTF-16 text; send UTF-8"),
    (b"\x00\x00\xfe\xff", "it is UTF-32 text; send UTF-8"),
)


@dataclass(frozen=True)
class FileRules:
    """What the files of a source hold, and what becomes of them once they are on the tape."""

    format: str | Format
    keep: Literal["archive", "delete"] = "archive"
    schemas: Path = Path("schemas")  # where those of Avro files are kept

    @property
    def written(self) -> Format:
        """The format, whether it was given by its name or as an object."""
        return format_of("the source", self.format, "file")


@dataclass(frozen=True)
class TailStart:
    """What came before a delivery that is the tail of an earlier one."""

    lines_before: int = 0
    header: bytes | None = None


class DeliveryReader:
    """One pass over the first `size` bytes of an open file: iterate it for the lines.

    The `header`, a csv's first line or the name of an Avro file's schema, is known before its first
    lines are given out; `sha256`, of the bytes as delivered, after the last ones. Raises
    UnreadableFileError at what makes the file unreadable.
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
        self.sha256 = ""
        self._handle = handle
        self._size = size
        self._form = form
        self._limits = limits
        self.lines_before = start.lines_before if start else 0

    def __iter__(self) -> Iterator[Lines]:
        if self._size > self._limits.file_bytes:
            limit = self._limits.file_bytes
            raise UnreadableFileError(f"it is {self._size:,} bytes long, the limit is {limit:,}")
        return self._counted()

    def _counted(self) -> Iterator[Lines]:
        number = self.lines_before + 1
        count = 0
        for some in self._split():
            lines = some if isinstance(some, Lines) else lines_of(some, number, self.record_bytes)
            if not len(lines):  # a format may have nothing to give out yet
                continue
            number += len(lines)
            count += len(lines)
            if count > self._limits.file_rows:
                raise UnreadableFileError(
                    f"it has more than {self._limits.file_rows:,} records, the limit"
                )
            yield lines
        self.sha256 = self.sha256 or sha256_of(self._handle, self._size)

    def _split(self) -> Iterator[Sequence[bytes]]:
        """What the format makes of the file; what it raises says that the file is not sound."""
        try:
            yield from self._form.written.split(self)
        except ValueError as error:
            raise UnreadableFileError(str(error)) from None
        except FAILS as error:
            raise UnreadableFileError(
                f"it is not {self._form.written.name}: {type(error).__name__}: {error}"
            ) from None

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
        chunks = self._raw()
        magic = os.pread(self._handle, min(4, self._size), 0)
        if magic.startswith(GZIP):
            chunks = _unpacked(chunks, self._limits)
        elif magic == PARQUET and os.pread(self._handle, 4, self._size - 4) == PARQUET:
            raise UnreadableFileError(
                "it is a Parquet file; declare the source with format 'parquet'"
            )
        elif magic == AVRO:
            raise UnreadableFileError("it is an Avro file; declare the source with format 'avro'")
        head = b""
        while len(head) < HEAD_BYTES and (chunk := next(chunks, b"")):
            head += chunk
        for beginning, reason in FOREIGN:
            if head.startswith(beginning):
                raise UnreadableFileError(reason)
        if head.startswith(GZIP):
            raise UnreadableFileError("it is gzip inside gzip; compress it once")
        yield head.removeprefix(UTF8_MARK)
        yield from chunks

    def _raw(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for chunk in _chunks(self._handle, self._size):
            digest.update(chunk)
            yield chunk
        self.sha256 = digest.hexdigest()


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


def _unpacked(chunks: Iterator[bytes], limits: IntakeLimits) -> Iterator[bytes]:
    """The content of gzip members, one after the other."""
    member = zlib.decompressobj(wbits=31)
    packed = unpacked = 0
    for chunk in chunks:
        rest = chunk
        packed += len(chunk)
        limit = limits.of(packed).unpacked_bytes
        while True:
            if member.eof:
                rest = rest.lstrip(b"\0")  # padding between and after members is allowed
                if not rest:
                    break
                member = zlib.decompressobj(wbits=31)
            data, rest = _inflated(member, rest)
            unpacked += len(data)
            if unpacked > limit:
                raise UnreadableFileError(
                    f"its gzip stream unpacks to more than {limit:,} bytes from {packed:,}"
                )
            if data:
                yield data
            # A full chunk may leave output behind even when all input is used up.
            if not rest and len(data) < READ_BYTES:
                break
    if not member.eof:
        raise UnreadableFileError("its gzip stream ends early")


def _inflated(member: zlib._Decompress, packed: bytes) -> tuple[bytes, bytes]:
    """Some unpacked bytes, and the input that was not needed for them."""
    try:
        data = member.decompress(packed, READ_BYTES)
    except zlib.error as error:
        raise UnreadableFileError(f"its gzip stream is damaged: {error}") from None
    return data, member.unused_data if member.eof else member.unconsumed_tail
