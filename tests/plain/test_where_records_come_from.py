"""The file of a record on the tape: path, modification time and line, for those who ask."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tapeline import Csv, DeclarationError, Files
from tapeline.intake.delivery_reader import FileRules
from tests.support.archives import tarred, zipped
from tests.support.intake_desk import LONG_AGO_NS, Desk

WHEN = datetime.fromtimestamp(LONG_AGO_NS / 1_000_000_000, UTC)


def origins(desk: Desk) -> list[tuple[Any, ...]]:
    return [(row.get("path"), row.get("modified"), row["line"], row["raw"]) for row in desk.tape]


def test_with_meta_every_record_has_its_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("text", meta=True))
    desk.send("a.txt", b"1\n2\n")
    desk.send("2013/10/b.txt", b"3\n")
    desk.run()
    assert origins(desk) == [
        ("2013/10/b.txt", WHEN, 1, b"3"),
        ("a.txt", WHEN, 1, b"1"),
        ("a.txt", WHEN, 2, b"2"),
    ]


def test_without_meta_only_members_of_archives_have_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("text"))
    desk.send("a.txt", b"1\n")
    desk.send("b.zip", zipped({"x/y.txt": b"2\n", "z.txt": b"3\n"}))
    desk.send("c.tar", tarred({"a.txt": b"4\n"}))
    desk.run()
    assert origins(desk) == [
        (None, None, 1, b"1"),
        ("b.zip/x/y.txt", WHEN, 1, b"2"),
        ("b.zip/z.txt", WHEN, 1, b"3"),
        ("c.tar/a.txt", WHEN, 1, b"4"),
    ]


def test_a_tape_of_plain_files_stays_as_it_was(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.send("a.json", b"1\n")
    desk.run()
    assert "path" not in desk.tape[0]


def test_what_is_appended_has_the_time_of_the_appending(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules(Csv(), meta=True))
    path = desk.send("a.csv", b"id\n1\n")
    keep = desk.root / "second_name"
    os.link(path, keep)
    desk.take()
    with keep.open("ab") as file:
        file.write(b"2\n")
    later = LONG_AGO_NS + 5_000_000_000
    os.utime(keep, ns=(later, later))
    desk.run()
    desk.seconds += 1
    desk.run()
    desk.run()
    assert [(row[0], row[1].timestamp(), row[2]) for row in origins(desk)] == [
        ("a.csv", LONG_AGO_NS / 1e9, 2),
        ("a.csv", later / 1e9, 3),
    ]


def test_a_large_file_has_it_in_all_its_pieces_also_after_a_crash(tmp_path: Path) -> None:
    desk = Desk(tmp_path, FileRules("text", meta=True), records_per_piece=2)
    desk.send("a.txt", b"1\n2\n3\n4\n5\n")
    desk.take()
    desk.start()
    desk.run()
    assert {row[:2] for row in origins(desk)} == {("a.txt", WHEN)}
    assert [row[2] for row in origins(desk)] == [1, 2, 3, 4, 5]


def test_a_column_of_the_same_name_is_refused() -> None:
    with pytest.raises(DeclarationError, match="meta=True adds the column 'file', but the schema"):
        Files("drop/", schema="id string, file string", meta=True)


def test_meta_is_no_part_of_what_records_mean() -> None:
    said = Files("drop/", schema="id string").records.meaning
    assert Files("drop/", schema="id string", meta=True).records.meaning == said
