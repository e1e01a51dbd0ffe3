"""Every row of the table in the reference: the file it describes, and what its records are."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tapeline import Csv, Json
from tapeline.formats.limits import IntakeLimits
from tapeline.intake.delivery_reader import DeliveryReader, FileRules
from tests.support.archives import tarred, zipped, zstd
from tests.support.doc_pages import REFERENCE, section
from tests.support.fix import FILL_44, message
from tests.support.hostile_files import parquet

CSV = b"id,name\n1,a\n2,b\n"
OBJECTS = [b'{"id": 1.10}', b'{"id": 2}']
ROWS = [b"1,a", b"2,b"]


def avro() -> bytes:
    file = io.BytesIO()
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]}
    fastavro.writer(file, schema, [{"id": "a"}])
    return file.getvalue()


FILES: dict[str, tuple[list[bytes], list[bytes]]] = {
    "one JSON object per line": ([b'{"id": 1.10}\n{"id": 2}\n'], OBJECTS),
    "a JSON list of objects": ([b'[{"id": 1.10},\n {"id": 2}]'], OBJECTS),
    "one JSON object over several lines, or several of them": (
        [b'{"id":\n 2}', b'{"id":\n 2}\n'],
        [b'{"id":\n 2}'],
    ),
    "a JSON object with the list inside": (
        [b'{"error": [], "result": {"n": 2, "trades": [{"id": 1.10}, {"id": 2}]}}'],
        OBJECTS,
    ),
    "a JSON list of lists, whose values have no names": (
        [b'[[1, "a"], [2, "b"]]'],
        [b'[1, "a"]', b'[2, "b"]'],
    ),
    "CSV with a header": ([CSV], ROWS),
    "CSV without a header": ([b"1,a\n2,b\n"], ROWS),
    "CSV with semicolons": ([b"id;name\n1;a\n2;b\n"], [b"1;a", b"2;b"]),
    "columns separated by tabs, in which quotes are ordinary characters": (
        [b'id\tname\n1\t5" disk\n'],
        [b'1\t5" disk'],
    ),
    "CSV with words for null": ([b"id,name\n1,NA\n"], [b"1,NA"]),
    "CSV with comment lines": ([b"# by hand\nid,name\n1,a\n#\n2,b\n"], ROWS),
    "CSV from Windows, in cp1252": (["id,name\r\n1,€\r\n".encode("cp1252")], ["1,€".encode()]),
    "CSV from a spreadsheet, in UTF-16 with tabs": (
        ["id\tname\r\n1\tä\r\n".encode("utf-16")],
        ["1\tä".encode()],
    ),
    "lines that end with LF, CR LF, or CR alone": (
        [CSV, CSV.replace(b"\n", b"\r\n"), CSV.replace(b"\n", b"\r")],
        ROWS,
    ),
    "compressed with gzip": ([gzip.compress(CSV)], ROWS),
    "compressed with bzip2": ([bz2.compress(CSV)], ROWS),
    "compressed with xz": ([lzma.compress(CSV)], ROWS),
    "compressed with zstd": ([zstd(CSV)], ROWS),
    "a zip archive with several files": (
        [zipped({"a.csv": b"id,name\n1,a\n", "b/c.csv": b"id,name\n2,b\n"})],
        ROWS,
    ),
    "a tar archive with several files, also compressed": (
        [
            pack(tarred({"a.csv": b"id,name\n1,a\n", "b/c.csv": b"id,name\n2,b\n"}))
            for pack in (bytes, gzip.compress, bz2.compress, lzma.compress, zstd)
        ],
        ROWS,
    ),
    "lines of text": ([b"1,a\n2,b"], ROWS),
    "Parquet": ([parquet(pa.table({"id": ["a"]}))], [b'{"id":"a"}']),
    "an Avro container": ([avro()], [b"\x02a"]),
    "a FIX log": ([b"10:05 " + message(FILL_44) + b"\n"], [b"10:05 " + message(FILL_44)]),
}


def table() -> dict[str, str]:
    """What the reference says: the file, and how it is declared."""
    text = section(REFERENCE, "### What a file may look like")
    rows = re.findall(r"^\| (.+?) \| `(.+?)` \|$", text, re.MULTILINE)
    return {file.split(", as in")[0]: said for file, said in rows}


def test_the_table_and_this_test_have_the_same_rows() -> None:
    assert list(table()) == list(FILES)


@pytest.mark.parametrize("file", FILES)
def test_a_file_as_described_becomes_its_records(file: str, tmp_path: Path) -> None:
    said: Any = eval(table()[file], {"Csv": Csv, "Json": Json})
    contents, records = FILES[file]
    for content in contents:
        handle = os.memfd_create("content")
        try:
            os.write(handle, content)
            rules = FileRules(said, schemas=tmp_path)
            reading = DeliveryReader(handle, len(content), rules, IntakeLimits())
            assert [record for lines in reading for record in lines.records()] == records
        finally:
            os.close(handle)
