"""JSON documents: lists of records, at a path or alone, cut without touching a digit."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline import DeclarationError, Files, Json, Kafka
from tapeline.formats import json_document
from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.formats.records import Records
from tapeline.intake import delivery_reader
from tapeline.intake.delivery_reader import DeliveryReader, FileRules
from tests.support.intake_desk import Desk

MIB = 1024 * 1024


def read(content: bytes, said: Json, chunk: int = 4 * MIB, **limits: int) -> list[bytes]:
    handle = os.memfd_create("content")
    before = delivery_reader.READ_BYTES, json_document.READ_AHEAD_BYTES
    delivery_reader.READ_BYTES = chunk
    json_document.READ_AHEAD_BYTES = min(chunk, 65_536)
    try:
        os.write(handle, content)
        reading = DeliveryReader(handle, len(content), FileRules(said), IntakeLimits(**limits))
        return [record for lines in reading for record in lines.records()]
    finally:
        delivery_reader.READ_BYTES, json_document.READ_AHEAD_BYTES = before
        os.close(handle)


LIST = Json(document=True)


@pytest.mark.parametrize(
    ("content", "said", "records"),
    [
        (b"", LIST, []),
        (b" []\n", LIST, []),
        (b'[{"a": 1.10}, {"a": 2}]', LIST, [b'{"a": 1.10}', b'{"a": 2}']),
        (b'\xef\xbb\xbf[\n  {\n    "a": 1\n  }\n]\n', LIST, [b'{\n    "a": 1\n  }']),
        (b'{"a": [1, 2]}\n', LIST, [b'{"a": [1, 2]}']),
        (b'{"a": 1} {"a": 2}\n[{"a": 3}]', LIST, [b'{"a": 1}', b'{"a": 2}', b'{"a": 3}']),
        (b'[[1, "x"], null, 7]', LIST, [b'[1, "x"]', b"null", b"7"]),
        (rb'["a,]\"", "\\", "[{"]', LIST, [rb'"a,]\""', rb'"\\"', b'"[{"']),
        (b'[{"a": tru}, {"a": 1}]', LIST, [b'{"a": tru}', b'{"a": 1}']),
        (b'{"n": 1, "r": {"x": [9], "t": [1, 2]}, "z": "}"}', Json(records="r.t"), [b"1", b"2"]),
        (b'{"a": "t", "\\u0074": [1], "s": "\\\\"}', Json(records="t"), [b"1"]),
        (b'{"t": {"id": 1}}', Json(records="t"), [b'{"id": 1}']),
        (b'{"u": [[{"t": 0}]], "t": []}', Json(records="t"), []),
        (gzip.compress(b"[1, 2]"), LIST, [b"1", b"2"]),
        (b"[1E400, 0.1000000000000000055511151231257827]", LIST,
         [b"1E400", b"0.1000000000000000055511151231257827"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunk", [1, 3, 4 * MIB])
def test_a_document_becomes_the_bytes_of_its_records(content, said, records, chunk) -> None:
    assert read(content, said, chunk) == records


@pytest.mark.parametrize(
    ("content", "said", "words"),
    [
        (b'[{"a": 1}', LIST, "its JSON ends early"),
        (b"[", LIST, "its JSON ends early"),
        (b'{"a": "x', LIST, "its JSON ends early"),
        (b"[1,,2]", LIST, "nothing between two commas"),
        (b"[1,]", LIST, "nothing between two commas"),
        (b"[1}", LIST, "'}' where ']' belongs"),
        (b"[1] 2", LIST, "its JSON is neither a list nor an object"),
        (b"name,price\n", LIST, "its JSON is neither a list nor an object"),
        (b'{"a": 1}', Json(records="t"), "its JSON has no 't'"),
        (b"[1]", Json(records="t"), "its JSON has no 't'"),
        (b'{"r": {"u": 1}}', Json(records="r.t"), "its JSON has no 'r.t'"),
        (b'{"r": null}', Json(records="r"), "its JSON at 'r' is neither a list nor an object"),
        (b'{"t": [1], "t": [2]}', Json(records="t"), "its JSON has 't' twice"),
        (b'{"t": [1]', Json(records="t"), "broken between two fields"),
        (b'{"t" 1}', Json(records="t"), "a name has no value"),
        (b"{t: 1}", Json(records="t"), "a field has no name"),
        (b'{"' + b"x" * 70_000 + b'": 1}', Json(records="t"), "its JSON has no 't'"),
        (b'{"' + b"x" * 9_000_000 + b'": 1}', Json(records="t"), "a name longer than 65,536"),
        (b'{"u": "' + b"x" * 9_000_000, Json(records="t"), "its JSON ends early"),
        (b'["' + b"x" * 9_000_000 + b'"]', LIST, "longer than 4,194,304 bytes"),
        (b'{"a": "' + b"x" * 9_000_000 + b'"}', LIST, "longer than 4,194,304 bytes"),
    ],
)
@pytest.mark.parametrize("chunk", [100_000, 4 * MIB])
def test_a_document_that_is_broken_is_rejected_with_its_reason(content, said, words, chunk) -> None:
    with pytest.raises(UnreadableFileError, match=words):
        read(content, said, chunk)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from('"\\[]{},'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    records=st.lists(VALUES, max_size=5),
    others=st.dictionaries(
        st.text(max_size=3).filter(lambda name: name != "t"), VALUES, max_size=3
    ),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
    chunk=st.integers(1, 50),
)
def test_any_document_is_cut_where_a_parser_would(
    records: list[Any], others: dict[str, Any], indent: int | None, ascii_only: bool, chunk: int
) -> None:
    names = list(others)
    some = {name: others[name] for name in names[: len(names) // 2]}
    whole = {**some, "t": records, **others}
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only)
    content = text.encode("utf-8", "surrogatepass")
    found = read(content, Json(records="t"), chunk)
    assert [json.loads(record) for record in found] == records
    assert all(record in content for record in found)


def test_a_large_document_is_read_in_bounded_memory_and_numbered(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules(Json(records="d.list")), record_bytes=100)
    item = b'{"id": "%d", "text": "' + b"y" * 60 + b'"}'
    count = 60_000
    content = b",\n".join(item % n for n in range(count))
    first = b'{"skipped": [' + content + b'], "d": {"list": ['
    desk.send("x.json", first + content + b', {"text": "' + b"z" * 200 + b'"}]}}')
    del content, first
    tracemalloc.start()
    desk.take()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(desk.tape) == count + 1
    assert desk.tape[-2]["raw"] == item % (count - 1)
    assert [desk.tape[n]["line"] for n in (0, 1, -1)] == [1, 2, count + 1]
    assert "longer than the limit" in desk.tape[-1]["fault"]
    assert peak < 100 * MIB


def test_options_that_cannot_work_are_refused() -> None:
    for path in ("", "a..b", "a."):
        with pytest.raises(DeclarationError, match="is not a path"):
            Json(records=path)
    with pytest.raises(DeclarationError, match="format 'json' cannot be read from a message"):
        Kafka("t", format=Json(document=True), schema="id string")
    with pytest.raises(DeclarationError, match="a sink writes"):
        _ = Files("out", format=Json(positional=True), schema="id string").goes_to


def test_only_what_a_record_is_belongs_to_the_meaning() -> None:
    def meaning(said: Any) -> Any:
        return dict(Records(said, "id string").meaning)

    plain = {"format": "json", "fields": [["id", "string", False]], "zone": "UTC"}
    assert meaning("json") == meaning(Json(records="a.b")) == plain
    assert meaning(Json(document=True, positional=True)) == {**plain, "positional": True}


def test_a_document_does_not_grow_line_by_line() -> None:
    assert Json().grows
    assert Json().takes_json_lines
    assert not LIST.grows
    assert not LIST.takes_json_lines
