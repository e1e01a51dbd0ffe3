"""References as people have them: JSON by line, as a list, or inside a document."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapeline import Files, Json, OperationError

SCHEMA = "id string, rate decimal(20,10)"
ROWS = [{"id": "a", "rate": Decimal("1234567890.1234567891")}, {"id": "b", "rate": None}]
OBJECTS = b'{"id": "a", "rate": 1234567890.1234567891, "more": {"x": 1}}%s\n{"id": "b"}'


def rows(folder: Path, name: str, content: bytes, said: Any = "json", schema: str | None = SCHEMA):  # type: ignore[no-untyped-def]
    (folder / name).write_bytes(content)
    return Files(name, format=said, schema=schema).snapshot(folder).to_pylist()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("lines.json", OBJECTS % b"", "json"),
        ("lines.jsonl", OBJECTS % b"", "json"),
        ("lines.json.gz", gzip.compress(OBJECTS % b""), "json"),
        ("list.json", b"\n[" + OBJECTS % b"," + b"]", "json"),
        ("mark.json", b"\xef\xbb\xbf" + OBJECTS % b"", "json"),
        ("list.txt", b"[" + OBJECTS % b"," + b"]", Json(document=True)),
        ("inside.json", b'{"n": [], "result": {"rates": [' + OBJECTS % b"," + b"]}}",
         Json(records="result.rates")),
        ("values.json", b'[["a", 1234567890.1234567891],\n["b", null]]',
         Json(document=True, positional=True)),
        ("wide.json", (b"[" + OBJECTS % b"," + b"]").decode().encode("utf-16"),
         Json(document=True, encoding="utf-16")),
    ],
)  # fmt: skip
def test_a_reference_of_json(tmp_path: Path, name: str, content: bytes, said: Any) -> None:
    assert rows(tmp_path, name, content, said) == ROWS


def test_a_long_row_and_an_empty_list_are_read(tmp_path: Path) -> None:
    long = "x" * 3_000_000
    text = f'{{"id": "{long}"}}'.encode()
    assert rows(tmp_path, "long.json", text, schema="id string") == [{"id": long}]
    assert rows(tmp_path, "none.json", b"[]") == []


@pytest.mark.parametrize(
    ("content", "said", "words"),
    [
        (b'[{"id": "a"}', "json", "its JSON ends early"),
        (b'{"a": []}', Json(records="b"), "its JSON has no 'b'"),
        (b'[["a"]]', Json(document=True, positional=True), "1 values, the schema has 2 columns"),
        (b'[{"id": 1}]', "json", "id"),
    ],
)
def test_a_reference_that_cannot_be_read_says_why(
    tmp_path: Path, content: bytes, said: Any, words: str
) -> None:
    with pytest.raises(OperationError, match=rf"wrong.json cannot be read: .*{words}"):
        rows(tmp_path, "wrong.json", content, said)
