"""Hostile files, and a reader of them whose memory is bounded by the system.

    python -m tests.hostile_files <folder> bombs          bombs in records
    python -m tests.hostile_files <folder> containers     bombs in archives and documents
    python -m tests.hostile_files <folder> <seed> <count> mutations of sound files

It prints JSON: for each file what became of it.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import random
import resource
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tapeline import Json, Text
from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.intake.delivery_reader import DeliveryReader, FileRules
from tests.support.archives import COMPRESSED, tarred, zipped, zstd

HEADROOM_BYTES = 768 * 1024 * 1024
MIB = 1024 * 1024
SYNC = b"s" * 16
OBJECTS = {
    "document": Json(document=True),
    "path": Json(records="t"),
    "utf-16": Text(encoding="utf-16"),
}


def number(value: int) -> bytes:
    """A whole number as Avro writes it."""
    value, out = (value << 1) ^ (value >> 63), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def parquet(table: Any, **said: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **said)
    return file.getvalue()


def avro(schema: Any, body: bytes, count: int = 1, codec: bytes = b"null") -> bytes:
    meta = {b"avro.codec": codec, b"avro.schema": json.dumps(schema).encode()}
    head = number(len(meta)) + b"".join(text(k) + text(v) for k, v in meta.items())
    return b"Obj\x01" + head + number(0) + SYNC + number(count) + text(body) + SYNC


def record(name: str, **fields: Any) -> dict[str, Any]:
    said = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": said}


def deflated(content: bytes) -> bytes:
    packed = zlib.compressobj(9, wbits=-15)
    return packed.compress(content) + packed.flush()


def laughing_schema(depth: int) -> dict[str, Any]:
    """Each record has two of the one below it: a byte becomes 2 to the power of `depth` records."""
    schema: Any = record("R0", n="null")
    for level in range(1, depth):
        schema = record(f"R{level}", a=schema, b=f"R{level - 1}")
    return {**schema, "fields": [*schema["fields"], {"name": "x", "type": "int"}]}


def parquet_bombs() -> Iterator[tuple[str, str, bytes]]:
    one = ["x" * (4 * MIB)]
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array(one))
    small = {"compression": "zstd", "compression_level": 19, "write_statistics": False}
    yield "one value in all rows", "parquet", parquet(pa.table({"a": shared}), **small)
    inside = pa.ListArray.from_arrays(pa.array(range(201), pa.int32()), shared.cast(pa.string()))
    yield "one value in all lists", "parquet", parquet(pa.table({"a": inside}), **small)
    many = pa.table({"a": pa.repeat(pa.scalar(1, pa.int64()), 5_000_000)})
    yield "five million rows", "parquet", parquet(many, **small)
    row = pa.ListArray.from_arrays(
        pa.array([0, 60_000_000], pa.int32()), pa.repeat(pa.scalar(1, pa.int8()), 60_000_000)
    )
    yield "one row of many values", "parquet", parquet(pa.table({"a": row}), **small)
    wide = pa.table({"a": pa.repeat(pa.scalar(b"y" * (2 * MIB), pa.binary(2 * MIB)), 100)})
    yield "fixed and wide", "parquet", parquet(wide, **small)
    delta = pa.table({"a": pa.array(one * 100)})
    said = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
    yield "each repeats the one before", "parquet", parquet(delta, **said, **small)
    page = pa.table({"a": pa.array(["z" * (150 * MIB)])})
    yield "one page", "parquet", parquet(page, use_dictionary=False, **small)


def avro_bombs() -> Iterator[tuple[str, str, bytes]]:
    meta = b"Obj\x01" + number(1) + text(b"avro.schema") + number(1_500_000_000)
    yield "a header that says 1.5 GB", "avro", meta + b"{}"
    yield "a header of many entries", "avro", b"Obj\x01" + number(10**12) + b"\0" * 10**6
    plain = record("R", a="string")
    yield "a text that says 1.5 GB", "avro", avro(plain, number(1_500_000_000) + b"x")
    packed = deflated(text(b"x" * (200 * MIB)))
    yield "a block that unpacks", "avro", avro(plain, packed, codec=b"deflate")
    yield "2^40 records in a byte", "avro", avro(laughing_schema(40), number(7))
    nulls = {f"n{place}": "null" for place in range(20_000)}
    yield "names without values", "avro", avro(record("R", **nulls, x="int"), number(7))
    items = {"type": "array", "items": record("I", **dict(list(nulls.items())[:500]), x="int")}
    yield "lists of such", "avro", avro(record("R", a=items), number(10_000) + b"\2" * 10_001)
    long = {"type": "bytes", "logicalType": "decimal", "precision": 999_999, "scale": 900_000}
    listed = record("R", a={"type": "array", "items": long})
    body = number(5_000) + b"\2\7" * 5_000 + number(0)
    yield "decimals of a million digits", "avro", avro(listed, body)
    yield "one such decimal", "avro", avro(record("R", a=long), b"\2\7")
    yield "one long name", "avro", avro(record("R", **{"n" * 500_000: "int"}), number(7))


def other_bombs() -> Iterator[tuple[str, str, bytes]]:
    yield "gzip of nothing", "json", gzip.compress(b"\0" * (120 * MIB))
    yield "gzip of line ends", "json", gzip.compress(b"\n" * (120 * MIB))
    yield "gzip of short lines", "csv", gzip.compress(b"a\n" * (60 * MIB))
    yield "a header as long as a book", "csv", b"h" * (900 * 1024) + b"\n1\n" * 100
    yield "gzip of messages", "fix", gzip.compress(b"8=FIX.4.4\x01" * (20 * MIB))


def document_bombs() -> Iterator[tuple[str, str, bytes]]:
    yield "a list in a list in a list", "document", b"[" * (30 * MIB)
    yield "one endless text", "document", b'["' + b"x" * (30 * MIB)
    yield "one endless text of backslashes", "document", b'["' + b"\\" * (30 * MIB)
    yield "one endless name", "path", b'{"' + b"x" * (30 * MIB)
    yield "a value that is passed over and never ends", "path", b'{"a": ' + b"[{" * (15 * MIB)
    yield "gzip of commas", "document", gzip.compress(b"[" + b"," * (100 * MIB))


def container_bombs() -> Iterator[tuple[str, str, bytes]]:
    nothing = b"\0" * (100 * MIB)
    for kind, pack in COMPRESSED.items():
        if kind != "gzip":
            yield f"{kind} of nothing", "text", pack(nothing)
        yield f"{kind} in itself", "text", pack(pack(nothing))
        yield f"a tar archive of nothing in {kind}", "text", pack(tarred({"a": nothing}))
    yield (
        "an xz stream that wants 1.5 GB",
        "text",
        lzma.compress(b"a", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1_500_000_000}]),
    )
    yield "a zip archive of nothing", "text", zipped({"a": nothing})
    some = b"\0" * (4 * MIB)
    yield "many members of nothing", "text", zipped({f"{n}": some for n in range(30)})
    yield "a zip archive in a zip archive", "text", zipped({"a.zip": zipped({"a": some})})
    sound = zipped({"a": b"x\n"})
    end = sound.index(b"PK\x05\x06")
    said = bytearray(sound[:end] + b"\0" * (100 * MIB) + sound[end:])
    said[-10:-6] = (100 * MIB + end - 48).to_bytes(4, "little")
    yield "a directory of 100 MB", "text", bytes(said)
    yield "many members", "text", zipped(dict.fromkeys(map(str, range(11_000)), b""))
    yield "a name that leads out", "text", zipped({"../../etc/cron.d/x": b"x"})
    header = bytearray(tarred({"a": b""})[:512])
    header[156:157] = b"x"  # pax
    header[124:136] = b"77777777777\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    yield "a tar header of 8 GB", "text", bytes(header) + b"\0" * 10_000
    header[156:157] = b"L"  # a long name
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    yield "a tar name of 8 GB", "text", bytes(header) + b"\0" * 10_000


def sound_files() -> list[tuple[str, bytes]]:
    """Small files of every container and format, to be damaged."""
    table = pa.table(
        {
            "id": [f"t{n}" for n in range(300)],
            "n": pa.array(range(300), pa.int64()),
            "l": [[{"a": n, "b": "x" * (n % 7)}] * (n % 4) for n in range(300)],
            "m": pa.array([[("k", "v")]] * 300, pa.map_(pa.string(), pa.string())),
        }
    )
    schema = record("R", id="string", n="long", l={"type": "array", "items": ["null", "string"]})
    rows = [{"id": f"t{n}", "n": n, "l": [None, "x"] * (n % 3)} for n in range(300)]
    found = [("parquet", parquet(table, compression=codec)) for codec in ("none", "zstd", "gzip")]
    found.append(("parquet", parquet(table, data_page_version="2.0", use_dictionary=False)))
    for codec in ("null", "deflate"):
        file = io.BytesIO()
        fastavro.writer(file, schema, rows, codec)
        found.append(("avro", file.getvalue()))
    lines = b"".join(b'{"id": "t%d"}\n' % n for n in range(300))
    fix = b"8=FIX.4.4\x019=5\x0135=8\x0110=000\x01\n" * 50
    found += [("json", lines), ("json", gzip.compress(lines)), ("text", gzip.compress(lines))]
    found += [("csv", b"id\n" + lines), ("csv", gzip.compress(lines)), ("fix", fix)]
    found += [("text", pack(lines)) for pack in COMPRESSED.values()]
    members = {"a/b.csv": lines, "c.csv": lines[:90]}
    found += [("csv", zipped(members)), ("csv", tarred(members)), ("csv", zstd(tarred(members)))]
    found += [
        ("csv", tarred(members, tarfile.PAX_FORMAT)),
        ("utf-16", lines.decode().encode("utf-16")),
    ]
    listed = b"[" + lines.replace(b"}\n", b'\\"}, ') + b"{}]"
    return [*found, ("document", listed), ("path", b'{"a": %s, "t": %s}' % (listed, listed))]


def damaged(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8])):
        place = chance.randrange(len(changed))
        kind = chance.randrange(4)
        if kind == 0:
            changed[place] = chance.randrange(256)
        elif kind == 1:
            changed[place : place + 4] = chance.choice([b"\xff" * 4, b"\x7f" * 4, b"\0" * 4])
        elif kind == 2:
            changed[place:place] = chance.randbytes(chance.randrange(1, 9))
        else:
            del changed[place : place + chance.randrange(1, 9)]
    return bytes(changed)


def read(path: Path, kind: str, schemas: Path) -> str:
    handle = os.open(path, os.O_RDONLY)
    try:
        form = FileRules(OBJECTS.get(kind, kind), schemas=schemas)
        size = os.fstat(handle).st_size
        count = sum(map(len, DeliveryReader(handle, size, form, IntakeLimits())))
    except UnreadableFileError as error:
        return f"rejected: {error}"
    finally:
        os.close(handle)
    return f"read: {count}"


def bound_memory() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + HEADROOM_BYTES, taken + HEADROOM_BYTES))


def main() -> None:
    folder = Path(sys.argv[1])
    if sys.argv[2] == "bombs":
        made = [*parquet_bombs(), *avro_bombs(), *other_bombs()]
    elif sys.argv[2] == "containers":
        made = [*document_bombs(), *container_bombs()]
    else:
        chance, sound = random.Random(int(sys.argv[2])), sound_files()
        picked = [chance.choice(sound) for _ in range(int(sys.argv[3]))]
        made = [
            (str(n), kind, damaged(content, chance)) for n, (kind, content) in enumerate(picked)
        ]
    bound_memory()
    found = {}
    for name, kind, content in made:
        (folder / "file").write_bytes(content)
        found[name] = read(folder / "file", kind, folder / "schemas")
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
