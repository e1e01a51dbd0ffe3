"""CSV as people write it: without a header, with other separators, null words and comments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline import Csv, DeclarationError, Files, OperationError
from tapeline.formats.lines import lines_of
from tapeline.formats.records import Records
from tapeline.intake.delivery_reader import FileRules
from tests.support.intake_desk import Desk


def read(tmp_path: Path, said: Csv, content: bytes) -> list[tuple[int, bytes, bytes | None]]:
    desk = Desk(tmp_path, FileRules(said))
    desk.send("x.csv", content)
    desk.run()
    return [(row["line"], row["raw"], row["header"]) for row in desk.tape]


def test_without_a_header_the_first_line_is_a_record(tmp_path: Path) -> None:
    assert read(tmp_path, Csv(header=False), b"1,a\n2,b\n") == [
        (1, b"1,a", None),
        (2, b"2,b", None),
    ]


def test_comments_are_left_out_before_and_after_the_header(tmp_path: Path) -> None:
    content = b"# made by a tool\r\nid,name\n1,a\n#\n\n 2,b\n#3,c\n4,#d\n"
    assert read(tmp_path, Csv(comment="#"), content) == [
        (3, b"1,a", b"id,name"),
        (6, b" 2,b", b"id,name"),
        (8, b"4,#d", b"id,name"),
    ]


def test_a_file_of_comments_alone_has_no_records(tmp_path: Path) -> None:
    assert read(tmp_path, Csv(comment="//"), b"// a\n// b") == []


def test_an_appended_line_is_read_under_the_header_after_the_comments(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules(Csv(comment="#")))
    path = desk.send("x.csv", b"# made by a tool\nid\n1\n")
    keep = desk.root / "second_name"
    os.link(path, keep)
    desk.take()
    with keep.open("ab") as file:
        file.write(b"# more\n2\n")
    desk.run()
    desk.seconds += 1
    desk.run()
    desk.run()
    found = [(row["line"], row["raw"], row["header"]) for row in desk.tape]
    assert found == [(3, b"1", b"id"), (5, b"2", b"id")]


@given(st.lists(st.sampled_from([b"", b"#", b"##", b"a", b"a#", b"#a", b"/", b"//x"])))
def test_lines_without_those_that_begin_with_some_bytes(records: list[bytes]) -> None:
    lines = lines_of(records, 1, 2)
    for beginning in (b"#", b"//"):
        found = lines.without(beginning)
        kept = [n for n, record in enumerate(records) if not record[:2].startswith(beginning)]
        assert found.records() == [records[n][:2] for n in kept]
        assert found.numbers.tolist() == [n + 1 for n in kept]
        assert [place in found.faults for place in range(len(kept))] == [
            len(records[n]) > 2 for n in kept
        ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"separator": ""}, "separator='' is not one character"),
        ({"separator": "||"}, "is not one character. Write for example separator=';'"),
        ({"separator": "\n"}, "is not one character"),
        ({"quote": "''"}, "quote=\"''\" is not one character"),
        ({"quote": ","}, "cannot be the separator and the quote"),
        ({"nulls": "NA"}, r"nulls is a list of words. Write nulls=\('NA',\)"),
        ({"comment": ""}, "is not how a line can begin"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        Csv(**options)


def test_the_meaning_of_csv_changes_only_where_an_option_is_used() -> None:
    def meaning(said: Any) -> Any:
        return dict(Records(said, "id string").meaning)

    plain = meaning("csv")
    assert plain == {"format": "csv", "fields": [["id", "string", False]], "zone": "UTC"}
    assert meaning(Csv()) == meaning(Csv(comment="#")) == plain
    assert meaning(Csv(nulls=["b", "a"])) == {**plain, "nulls": ["a", "b"]}
    said = Csv(header=False, separator=";", quote=None)
    assert meaning(said) == {**plain, "header": False, "separator": ";", "quote": None}


def test_a_sink_writes_csv_that_the_same_options_read() -> None:
    rows = [{"id": "a;b", "n": 1}, {"id": "it's", "n": None}]
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    said = Csv(header=False, separator=";", quote="'")
    assert said.encode_file(rows, schema) == b"'a;b';1\n'it''s';\n"
    with pytest.raises(DeclarationError, match="a sink writes"):
        _ = Files("out", format=Csv(comment="#"), schema="id string").goes_to


def test_a_reference_may_be_such_a_file(tmp_path: Path) -> None:
    def rows(name: str, content: bytes, said: Any, schema: str | None = None) -> Any:
        (tmp_path / name).write_bytes(content)
        return Files(name, format=said, schema=schema).snapshot(tmp_path).to_pylist()

    expected = [{"id": "1", "name": "ä,b"}, {"id": "2", "name": None}]
    assert rows("a.csv", '\ufeff"id",name\n1,"ä,b"\n2,\n'.encode(), "csv") == expected
    text = "'id';'name'\n1;'ä,b'\n2;NA\n".encode("cp1252")
    said = Csv(separator=";", quote="'", nulls=["NA"], encoding="cp1252")
    assert rows("b.csv", text, said) == expected
    bare = Csv(header=False, separator="\t", quote=None)
    assert rows("c.txt", "1\tä,b\n2\t\n".encode(), bare, "id string, name string") == expected
    for other in (Csv(comment="#"), Csv(header=False)):
        with pytest.raises(OperationError, match="a reference cannot have comments"):
            rows("d.csv", b"id\n", other)
