"""`why` reads the records that it lists, not all that are behind a number."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tapeline import Files, Pipeline, Stream
from tapeline.books import Books, lineage
from tapeline.books.commit import Commit
from tapeline.books.reader import ReadPoint
from tapeline.books.revisions import why
from tapeline.plan import resolve


def books_of(folder: Path, batches: int, records: int) -> Books:
    """Books with one number that every batch changed by so many records."""
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("landing/", schema="k string, m bigint"))

    @pipeline.table
    def rows(raw: Stream) -> Any:
        return raw

    @pipeline.summary(key="k")
    def totals(rows: Stream) -> Any:
        return rows

    books = Books(resolve(pipeline), folder)
    for batch in range(1, batches + 1):
        many = {"k": ["a"] * records, "m": np.ones(records, np.int64)}
        places = [pa.array(["raw"] * records), pa.array([batch] * records), np.arange(records)]
        position = pa.StructArray.from_arrays(list(map(pa.array, places)), ["source", "part", "at"])
        signs = {"_position": position, "_sign": np.ones(records, np.int32)}
        common = {"_cause": ["on_time"] * records, "_batch": [batch] * records}
        links = pa.table({**many, **signs, **common})
        write_deltalake(str(books.layout.links("totals")), links, mode="append")
        journal = {"k": ["a"], "m": [records], "_entries": [records], "_cause": ["on_time"]}
        entry = pa.table({**journal, "_batch": [batch], "_clock": [0]})
        write_deltalake(str(books.layout.journal("totals")), entry, mode="append")
    books.cut = lambda as_reported=None: ReadPoint(  # type: ignore[method-assign]
        batches, datetime(2026, 11, 13, tzinfo=UTC), Commit()
    )
    return books


def test_only_listed_records_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    books = books_of(tmp_path, batches=3, records=500)
    write_deltalake(
        str(books.layout.commits),
        pa.table(
            {"batch": [1], "event": ["published"], "at": [datetime(2026, 11, 13, tzinfo=UTC)]}
        ),
    )
    wanted: list[int] = []
    want = lineage._want
    monkeypatch.setattr(
        lineage, "_want", lambda c, places: (wanted.append(len(places)), want(c, places))
    )
    found = why(books, "totals", ["a"], limit=20)
    assert [len(one.records) for one in found] == [20] * 3
    assert found[-1].value == {"m": 1500}
    assert [one["at"] for one in found[0].records] == list(range(20))
    assert wanted[0] == 60
