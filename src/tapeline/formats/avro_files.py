"""The records of an Avro container file, each as the bytes it was written with."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from tapeline.declare.format import FileLimits
from tapeline.formats.avro_schemas import BROKEN, SCHEMA_BYTES, avro_schema

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
BLOCK_BYTES = 64 * 1024 * 1024
RECORDS_AT_ONCE = 1_000
META_ENTRIES = 1_000
META_BYTES = 2 * SCHEMA_BYTES


def avro_records(
    file: BinaryIO, bounds: FileLimits, found_schema: Callable[[bytes], None]
) -> Iterator[list[bytes]]:
    """Each record's own bytes, some at a time; the file's schema is told before the first ones.

    Raises ValueError when the file is not sound: cut off, damaged, more than it may be, or packed
    in a way that only other tools unpack.
    """
    try:
        yield from _records(file, bounds, found_schema)
    except ValueError:
        raise
    except BROKEN as error:
        raise ValueError(f"{type(error).__name__} while it was read") from None


def _records(
    file: BinaryIO, bounds: FileLimits, found_schema: Callable[[bytes], None]
) -> Iterator[list[bytes]]:
    meta, sync = _header(file)
    codec = meta.get(b"avro.codec", b"null").decode("ascii", "replace")
    if codec not in ("null", "deflate"):
        raise ValueError(f"its blocks are packed with {codec}; write them with deflate or null")
    text = meta[b"avro.schema"]
    if len(text) > SCHEMA_BYTES:
        raise ValueError(f"its schema is {len(text):,} bytes long, the limit is {SCHEMA_BYTES:,}")
    schema = avro_schema(text)
    found_schema(text)
    limit, records = bounds.unpacked_bytes, 0
    for count, block in _blocks(file, sync, min(BLOCK_BYTES, bounds.bytes_at_once)):
        records += count
        if records > bounds.rows:
            raise ValueError(f"it has {records:,} records, the limit is {bounds.rows:,}")
        most = min(limit, BLOCK_BYTES, bounds.bytes_at_once)
        unpacked = _inflated(block, most) if codec == "deflate" else block
        limit -= len(unpacked)
        yield from _cut(unpacked, count, schema)


def _header(file: BinaryIO) -> tuple[dict[bytes, bytes], bytes]:
    """What a file says of itself, and the mark after its blocks; no length is trusted."""
    _exactly(file, len(MAGIC))
    meta: dict[bytes, bytes] = {}
    entries, left = 0, META_BYTES
    while count := _needed(file):
        if count < 0:
            count = -count
            _needed(file)  # the bytes of these entries
        entries += count
        if entries > META_ENTRIES:
            raise ValueError(f"its header has more than {META_ENTRIES:,} entries")
        for _ in range(count):
            key = _text(file, left)
            value = _text(file, left - len(key))
            left -= len(key) + len(value)
            meta[key] = value
    return meta, _exactly(file, SYNC_BYTES)


def _text(file: BinaryIO, limit: int) -> bytes:
    size = _needed(file)
    if not 0 <= size <= limit:
        raise ValueError(f"its header has {size:,} bytes in one entry, the limit is {META_BYTES:,}")
    return _exactly(file, size)


def _exactly(file: BinaryIO, size: int) -> bytes:
    found = file.read(size)
    if len(found) < size:
        raise ValueError("it is cut off")
    return found


def _needed(file: BinaryIO) -> int:
    found = _number(file)
    if found is None:
        raise ValueError("it is cut off")
    return found


def _blocks(file: BinaryIO, sync: bytes, most: int) -> Iterator[tuple[int, bytes]]:
    """The blocks as they are packed, with their numbers of records."""
    while (count := _number(file)) is not None:
        size = _number(file)
        if size is None or count < 0 or not 0 <= size <= most:
            raise ValueError(f"a block says that it is {size} bytes long, the limit is {most:,}")
        block, mark = file.read(size), file.read(SYNC_BYTES)
        if len(block) < size or mark != sync:
            raise ValueError("it is cut off or damaged: a block does not end with its mark")
        yield count, block


def _cut(block: bytes, count: int, schema: Any) -> Iterator[list[bytes]]:
    """Reading a record is the one way to know where it ends; nothing of it is built."""
    import fastavro

    stream, start, some = io.BytesIO(block), 0, []
    # To a reader that knows no field all of them are skipped.
    nothing = fastavro.parse_schema({"type": "record", "name": schema["name"], "fields": []})
    for _ in range(count):
        fastavro.schemaless_reader(stream, schema, nothing)
        end = stream.tell()
        if end == start:
            raise ValueError("its records have no bytes")
        some.append(block[start:end])
        start = end
        if len(some) == RECORDS_AT_ONCE:
            yield some
            some = []
    if start != len(block):
        raise ValueError("a block holds more than its records")
    if some:
        yield some


def _number(file: BinaryIO) -> int | None:
    """A whole number as Avro writes it; None at the end of the file."""
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        if shift > 63:
            raise ValueError("a block begins with a number that is too long")
    if shift:
        raise ValueError("it is cut off in the middle of a number")
    return None


def _inflated(block: bytes, limit: int) -> bytes:
    """One block unpacked, within what the file may still unpack to."""
    packed = zlib.decompressobj(wbits=-15)
    try:
        data = packed.decompress(block, max(1, limit))
    except zlib.error as error:
        raise ValueError(f"a block is damaged: {error}") from None
    if packed.unconsumed_tail:
        raise ValueError(f"a block unpacks to more than {limit:,} bytes")
    return data
