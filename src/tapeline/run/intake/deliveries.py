"""Reading one delivery: its container, its encoding and its lines, in bounded memory."""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

import pyarrow as pa

from tapeline.connect.formats import Format
from tapeline.errors import DeclarationError
from tapeline.run.intake.containers import MAGIC as AVRO
from tapeline.run.intake.containers import avro_records, keep_schema
from tapeline.run.intake.lines import CR, LF, Lines, Splitter, lines_of
from tapeline.run.intake.messages import one_each
from tapeline.run.intake.rows import json_rows
from tapeline.run.room import Room

MIB = 1024 * 1024
READ_BYTES = 4 * MIB
# Anything may unpack to this much before the ratio counts: small files can compress very well.
UNPACKED_ALLOWANCE_BYTES = 16 * MIB
GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
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
class IntakeLimits:
    """How much intake does in one pass, puts into one piece and accepts from a sender."""

    files_per_pass: int = 2_000
    records_per_piece: int = 50_000
    bytes_per_piece: int = 16 * MIB
    record_bytes: int = MIB
    file_bytes: int = 5 * 1024 * MIB
    expansion_ratio: int = 200
    settle_seconds: float = 1.0
    room: Room | None = None  # how many records a batch may hold, if that changes

    @property
    def piece_records(self) -> int:
        """How many records a piece may hold now."""
        most = self.records_per_piece
        return min(most, self.room.records) if self.room else most

    def __post_init__(self) -> None:
        if min(self.files_per_pass, self.records_per_piece, self.record_bytes) < 1:
            raise DeclarationError(
                "intake: files_per_pass, records_per_piece and record_bytes must be at least 1."
            )
        if self.record_bytes > self.bytes_per_piece:
            raise DeclarationError(
                f"intake: record_bytes ({self.record_bytes:,}) is above bytes_per_piece "
                f"({self.bytes_per_piece:,}). A piece must have room for the longest record."
            )


@dataclass(frozen=True)
class Form:
    """What the files of a source hold, and what becomes of them once they are on the tape."""

    format: Format
    keep: Literal["archive", "delete"] = "archive"
    schemas: Path = Path("schemas")  # where those of Avro files are kept


@dataclass(frozen=True)
class Start:
    """What came before a delivery that is the tail of an earlier one."""

    lines_before: int = 0
    header: bytes | None = None


class UnfitError(Exception):
    """A delivery cannot be read. The message says why, for its sender."""


class Reading:
    """One pass over the first `size` bytes of an open file: iterate it for the lines.

    The `header`, a csv's first line or the name of an Avro file's schema, is known before its first
    lines are given out; `sha256`, of the bytes as delivered, after the last ones. Raises UnfitError
    at what makes the file unreadable.
    """

    def __init__(
        self, handle: int, size: int, form: Form, limits: IntakeLimits, start: Start | None = None
    ) -> None:
        self.header = start.header if start else None
        self.sha256 = ""
        self._handle = handle
        self._size = size
        self._form = form
        self._limits = limits
        self._lines_before = start.lines_before if start else 0

    def __iter__(self) -> Iterator[Lines]:
        if self._size > self._limits.file_bytes:
            limit = self._limits.file_bytes
            raise UnfitError(f"it is {self._size:,} bytes long, the limit is {limit:,}")
        if self._form.format == "parquet":
            return self._rows()
        if self._form.format == "avro":
            return self._records()
        return self._lines()

    def _lines(self) -> Iterator[Lines]:
        for end in (LF, CR):
            splitter = Splitter(end, self._limits.record_bytes, self._lines_before)
            returns = False
            for chunk in self._content():
                returns = returns or (not splitter.seen_end and CR in chunk)
                yield from self._after_header(splitter.feed(chunk))
            # Without any LF nothing was given out yet, and CR may be the line end (old Macs).
            if splitter.seen_end or not returns or end == CR:
                yield from self._after_header(splitter.finish())
                return

    def _after_header(self, parts: Iterator[Lines]) -> Iterator[Lines]:
        for lines in parts:
            if self._form.format != "csv" or self.header is not None:
                yield one_each(lines) if self._form.format == "fix" else lines
                continue
            if 0 in lines.faults:
                raise UnfitError(f"its header: {lines.faults[0].partition(';')[0]}")
            self.header = bytes(lines.values[: int(lines.lengths[0])])
            if len(lines) > 1:
                yield lines.between(1, len(lines))

    def _content(self) -> Iterator[bytes]:
        """The bytes to split: out of their container, without a byte order mark."""
        chunks = self._raw()
        magic = os.pread(self._handle, min(4, self._size), 0)
        if magic.startswith(GZIP):
            chunks = _unpacked(chunks, self._limits)
        elif magic == PARQUET and os.pread(self._handle, 4, self._size - 4) == PARQUET:
            raise UnfitError("it is a Parquet file; declare the source with format 'parquet'")
        elif magic == AVRO:
            raise UnfitError("it is an Avro file; declare the source with format 'avro'")
        head = b""
        while len(head) < HEAD_BYTES and (chunk := next(chunks, b"")):
            head += chunk
        for beginning, reason in FOREIGN:
            if head.startswith(beginning):
                raise UnfitError(reason)
        if head.startswith(GZIP):
            raise UnfitError("it is gzip inside gzip; compress it once")
        yield head.removeprefix(UTF8_MARK)
        yield from chunks

    def _raw(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for chunk in _chunks(self._handle, self._size):
            digest.update(chunk)
            yield chunk
        self.sha256 = digest.hexdigest()

    def _rows(self) -> Iterator[Lines]:
        for _ in self._raw():
            pass  # for its sha256
        if os.pread(self._handle, 4, 0) != PARQUET:
            raise UnfitError("it is not a Parquet file, which the source was declared to hold")
        number = 1
        try:
            with io.FileIO(self._handle, closefd=False) as file:
                for rows in json_rows(file, _unpacked_limit(self._size, self._limits)):
                    yield lines_of(rows, number, self._limits.record_bytes)
                    number += len(rows)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise UnfitError(f"its Parquet is not sound: {error}") from None

    def _records(self) -> Iterator[Lines]:
        for _ in self._raw():
            pass  # for its sha256
        if os.pread(self._handle, len(AVRO), 0) != AVRO:
            raise UnfitError("it is not an Avro file, which the source was declared to hold")
        number = 1
        try:
            with open(self._handle, "rb", closefd=False) as file:
                file.seek(0)
                allowed = _unpacked_limit(self._size, self._limits)
                for records in avro_records(cast(BinaryIO, file), allowed, self._know):
                    yield lines_of(records, number, self._limits.record_bytes)
                    number += len(records)
        except (ValueError, OSError) as error:
            raise UnfitError(f"its Avro is not sound: {error}") from None

    def _know(self, schema: bytes) -> None:
        # By its name beside every record: the schema itself may be as long as many of them.
        self.header = keep_schema(self._form.schemas, schema).encode()


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
            raise UnfitError(f"it shrank from {size:,} to {offset:,} bytes once it was taken")
        offset += len(chunk)
        yield chunk


def _unpacked_limit(packed_bytes: int, limits: IntakeLimits) -> int:
    allowed = max(UNPACKED_ALLOWANCE_BYTES, packed_bytes * limits.expansion_ratio)
    return min(allowed, limits.file_bytes)


def _unpacked(chunks: Iterator[bytes], limits: IntakeLimits) -> Iterator[bytes]:
    """The content of gzip members, one after the other."""
    member = zlib.decompressobj(wbits=31)
    packed = unpacked = 0
    for chunk in chunks:
        rest = chunk
        packed += len(chunk)
        limit = _unpacked_limit(packed, limits)
        while True:
            if member.eof:
                rest = rest.lstrip(b"\0")  # padding between and after members is allowed
                if not rest:
                    break
                member = zlib.decompressobj(wbits=31)
            data, rest = _inflated(member, rest)
            unpacked += len(data)
            if unpacked > limit:
                raise UnfitError(
                    f"its gzip stream unpacks to more than {limit:,} bytes from {packed:,}"
                )
            if data:
                yield data
            # A full chunk may leave output behind even when all input is used up.
            if not rest and len(data) < READ_BYTES:
                break
    if not member.eof:
        raise UnfitError("its gzip stream ends early")


def _inflated(member: zlib._Decompress, packed: bytes) -> tuple[bytes, bytes]:
    """Some unpacked bytes, and the input that was not needed for them."""
    try:
        data = member.decompress(packed, READ_BYTES)
    except zlib.error as error:
        raise UnfitError(f"its gzip stream is damaged: {error}") from None
    return data, member.unused_data if member.eof else member.unconsumed_tail
