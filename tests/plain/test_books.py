"""Tables as readers of a long life see them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

from tapeline.books import TableWriter
from tapeline.store.duckdb import newest_batch, rows_of

SCHEMA = pa.schema([("batch", pa.int64()), ("word", pa.string())])


def book(folder: Path, *words: str) -> TableWriter:
    found = TableWriter(folder, SCHEMA, "test")
    for number, word in enumerate(words, start=1):
        rows = pa.table({"batch": [number], "word": [word]}, SCHEMA)
        found.append(rows, number, f"{number:012}")
    return found


def words(folder: Path) -> list[str]:
    return sorted(row["word"] for row in rows_of(folder, "word"))


def test_a_reader_notices_another_table_in_the_same_place(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    book(folder, "a", "b", "c")
    assert words(folder) == ["a", "b", "c"]
    shutil.rmtree(folder)
    assert words(folder) == []
    book(folder, "x")
    assert words(folder) == ["x"]
    assert newest_batch(folder) == 1


def test_a_file_of_an_undecided_batch_is_in_no_table(tmp_path: Path) -> None:
    one = book(tmp_path / "table", "a")
    one.stage("000000000002", pa.table({"batch": [2], "word": ["b"]}, SCHEMA), 2)
    assert words(one.folder) == ["a"]


def test_two_processes_never_write_one_file(tmp_path: Path) -> None:
    one, other = book(tmp_path / "table"), book(tmp_path / "table")
    rows = pa.table({"batch": [1], "word": ["a"]}, SCHEMA)
    assert one.stage("000000000001", rows, 1).name != other.stage("000000000001", rows, 1).name


def test_a_checkpoint_whose_hint_was_lost_in_a_power_cut_is_still_one(tmp_path: Path) -> None:
    one = book(tmp_path / "table", "a", "b")
    one.checkpoint()
    (one.folder / "_delta_log" / "_last_checkpoint").unlink()
    again = TableWriter(one.folder, SCHEMA, "test")
    again.checkpoint()
    assert words(one.folder) == ["a", "b"]
