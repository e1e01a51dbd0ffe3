"""What Spark is given of books, asked without Spark: books that earlier versions made."""

from __future__ import annotations

import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tapeline import OperationError
from tapeline.settings import Settings
from tapeline.spark.books_source import Asked, BooksSource, ChangesReader
from tapeline.testing import Books, Deployment

ARCHIVES = Path(__file__).parents[1] / "fixtures" / "books"


@pytest.fixture(params=["sales", "calls"])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Books:
    with tarfile.open(ARCHIVES / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    project = tmp_path / request.param
    return Deployment("pipeline.py", Settings(project=project)).books


def options(books: Books, name: str, **more: str) -> dict[str, str]:
    return {"project": str(books.layout.home.parents[1]), "path": name, **more}


def read(books: Books, name: str, **more: str) -> list[dict[str, Any]]:
    source = BooksSource(options(books, name, **more))
    schema = source.schema()
    reader = source.reader(schema)
    rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
    assert all(list(row) == schema.names for row in rows)
    return rows


def test_every_table_summary_and_view_is_what_the_reader_says(books: Books) -> None:
    pipeline = books.plan.pipeline
    for name in (*pipeline.tables, *pipeline.summaries, *pipeline.views):
        rows = read(books, name)
        assert rows
        expected = books.read(name).to_pylist()
        assert len(rows) == len(expected)
        # The reader leaves the flag of a number beyond its type out: it has every number in full.
        seen = [{key: value for key, value in row.items() if key != "_overflow"} for row in rows]
        assert [row for row in seen if row not in expected] == []
        assert not any(row.get("_overflow") for row in rows)
        assert read(books, name, as_reported="1999-01-01") == [] or name in pipeline.views


def test_changes_add_up_to_what_is_there(books: Books) -> None:
    for name in books.plan.pipeline.tables:
        signs: dict[str, int] = defaultdict(int)
        for row in read(books, name, changes="true"):
            signs[str((row["_position"], row["_row"]))] += row["_sign"]
        there = {str((row["_position"], row["_row"])) for row in read(books, name)}
        assert {place for place, sign in signs.items() if sign} == there
    for name, summary in books.plan.pipeline.summaries.items():
        numbers: dict[str, Any] = {}
        for row in sorted(read(books, name, changes="true"), key=lambda one: one["_batch"]):
            key = str([row[k] for k in summary.key])
            assert row["_old"] == numbers.get(key)
            numbers[key] = row["_new"]
        for row in read(books, name):
            number = numbers.pop(str([row[k] for k in summary.key]))
            assert number == {measure: row[measure] for measure in number}
        assert set(numbers.values()) <= {None}


def test_a_stream_begins_at_the_beginning_and_knows_other_books(books: Books) -> None:
    name = next(iter(books.plan.pipeline.tables))
    reader = ChangesReader(Asked.of(options(books, name, changes="true")))
    end = reader.latestOffset(reader.initialOffset())
    assert end == {"epoch": 1, "batch": books.cut().batch, "hash": end["hash"]}
    assert len(end["hash"]) == 64
    assert reader.latestOffset(end) == end
    assert reader.partitions(end, end) == []
    parts = reader.partitions(reader.initialOffset(), end)
    assert sum(b.num_rows for part in parts for b in reader.read(part)) > 0
    for other in ({"hash": "0" * 64}, {"epoch": 2}, {"batch": 10**6}):
        with pytest.raises(OperationError, match="OTHER_BOOKS"):
            reader.latestOffset(end | other)
        with pytest.raises(OperationError, match="OTHER_BOOKS"):
            reader.partitions(reader.initialOffset(), end | other)
