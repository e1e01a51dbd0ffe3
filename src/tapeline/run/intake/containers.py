"""The records of an Avro container file, each as the bytes it was written with."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import fastavro
from fastavro.schema import SchemaParseException

from tapeline.books.durable import make_folder, replace_file

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
NAME_DIGITS = 32
SCHEMA_BYTES = 1024 * 1024
BLOCK_BYTES = 64 * 1024 * 1024
RECORDS_AT_ONCE = 1_000
HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": len(MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": SYNC_BYTES}},
        ],
    }
)
# What reading raises when the bytes are not what the schema says.
BROKEN = (EOFError, IndexError, KeyError, StopIteration, TypeError, ValueError, ArithmeticError,
          MemoryError, RecursionError)  # fmt: skip


def avro_schema(text: str | bytes) -> Any:
    """A schema, ready to read with. Raises ValueError for what is none, or is not safe to use."""
    try:
        schema: Any = fastavro.parse_schema(json.loads(text))
    except (*BROKEN, SchemaParseException) as error:
        raise ValueError(f"a schema that is not Avro's: {type(error).__name__}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("a schema that is not a record's")
    _refuse_unsafe(schema, {}, ())
    return schema


def _refuse_unsafe(kind: Any, named: dict[str, Any], inside: tuple[str, ...]) -> None:
    """Two kinds of schemas let a few bytes end the process that reads them."""
    if isinstance(kind, list):
        for one in kind:
            _refuse_unsafe(one, named, inside)
    if kind in inside:
        raise ValueError(f"a schema in which '{kind}' holds itself")  # fastavro's stack has no end
    if not isinstance(kind, dict):
        return
    if "name" in kind:
        named[kind["name"]], inside = kind, (*inside, kind["name"])
    for field in kind.get("fields", ()):
        _refuse_unsafe(field["type"], named, inside)
    for part in ("items", "values"):
        _refuse_unsafe(kind.get(part), named, inside)
    if "items" in kind and _weightless(kind["items"], named):
        raise ValueError("a schema with a list of values that take no bytes")  # billions of them


def _weightless(kind: Any, named: dict[str, Any]) -> bool:
    """Whether a value of this type may take no bytes. A list or a union always has one."""
    kind = named.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, dict):
        return bool(kind == "null")
    if kind["type"] in ("record", "error"):
        return all(_weightless(field["type"], named) for field in kind["fields"])
    return kind["type"] == "null" or kind.get("size") == 0


def keep_schema(folder: Path, schema: bytes) -> str:
    """Keep a schema, to stay, under a name that follows from its text."""
    name = hashlib.sha256(schema).hexdigest()[:NAME_DIGITS]
    path = folder / f"{name}.avsc"
    if not path.exists():
        make_folder(folder)
        replace_file(path, schema)
    return name


def avro_records(
    file: BinaryIO, unpacked_bytes_limit: int, found_schema: Callable[[bytes], None]
) -> Iterator[list[bytes]]:
    """Each record's own bytes, some at a time; the file's schema is told before the first ones.

    Raises ValueError when the file is not sound: cut off, damaged, or packed in a way that only
    other tools unpack.
    """
    try:
        yield from _records(file, unpacked_bytes_limit, found_schema)
    except ValueError:
        raise
    except BROKEN as error:
        raise ValueError(f"{type(error).__name__} while it was read") from None


def _records(
    file: BinaryIO, limit: int, found_schema: Callable[[bytes], None]
) -> Iterator[list[bytes]]:
    header: Any = fastavro.schemaless_reader(file, HEADER, None)
    codec = header["meta"].get("avro.codec", b"null").decode("ascii", "replace")
    if codec not in ("null", "deflate"):
        raise ValueError(f"its blocks are packed with {codec}; write them with deflate or null")
    text: bytes = header["meta"]["avro.schema"]
    if len(text) > SCHEMA_BYTES:
        raise ValueError(f"its schema is {len(text):,} bytes long, the limit is {SCHEMA_BYTES:,}")
    schema = avro_schema(text)
    found_schema(text)
    for count, block in _blocks(file, header["sync"]):
        unpacked = _inflated(block, limit) if codec == "deflate" else block
        limit -= len(unpacked)
        yield from _cut(unpacked, count, schema)


def _blocks(file: BinaryIO, sync: bytes) -> Iterator[tuple[int, bytes]]:
    """The blocks as they are packed, with their numbers of records."""
    while (count := _number(file)) is not None:
        size = _number(file)
        if size is None or count < 0 or not 0 <= size <= BLOCK_BYTES:
            raise ValueError(f"a block says that it is {size} bytes long")
        block, mark = file.read(size), file.read(SYNC_BYTES)
        if len(block) < size or mark != sync:
            raise ValueError("it is cut off or damaged: a block does not end with its mark")
        yield count, block


def _cut(block: bytes, count: int, schema: Any) -> Iterator[list[bytes]]:
    """Reading a record is the one way to know where it ends."""
    stream, start, some = io.BytesIO(block), 0, []
    for _ in range(count):
        fastavro.schemaless_reader(stream, schema, None)
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
        data = packed.decompress(block, max(1, min(limit, BLOCK_BYTES)))
    except zlib.error as error:
        raise ValueError(f"a block is damaged: {error}") from None
    if packed.unconsumed_tail:
        raise ValueError(f"a block unpacks to more than {min(limit, BLOCK_BYTES):,} bytes")
    return data
