"""The file of a record as steps see it: stored on the tape, so a replay gives the same."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream
from tapeline.books.lineage import origins_at
from tapeline.books.position import position_of
from tapeline.settings import Settings
from tapeline.testing import Deployment, Trial
from tests.support.archives import zipped

pytestmark = pytest.mark.usefixtures("spark")
NOON = datetime(2026, 11, 13, 12, tzinfo=UTC)


def prices() -> Pipeline:
    """The symbol of a price is only in the name of its file."""
    pipeline = Pipeline("prices")
    pipeline.source("raw", Files("drop/", format="csv", schema="price decimal(10,2)", meta=True))

    @pipeline.table
    def quotes(raw: Stream) -> DataFrame:
        symbol = F.regexp_replace("file.name", "[.].*", "")
        return raw.select("_position", "price", "file", symbol.alias("symbol"))

    return pipeline


def rows(read: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (row["symbol"], row["price"], *(row["file"] or {}).values()) for row in read("quotes")
    )


def test_files_and_members_of_archives_name_their_symbol_also_in_a_replay(tmp_path: Path) -> None:
    (tmp_path / "drop" / "day").mkdir(parents=True)
    (tmp_path / "drop" / "day" / "ABC.csv").write_bytes(b"price\n1.50\nx\n")
    (tmp_path / "drop" / "more.zip").write_bytes(zipped({"in/XYZ.csv": b"price\n2.50\n"}))
    for path in (tmp_path / "drop").rglob("*.*"):
        os.utime(path, (NOON.timestamp(),) * 2)
    here = Deployment(prices(), Settings(project=tmp_path, root=tmp_path / "books"))
    here.run_once()
    expected = [
        ("ABC", Decimal("1.50"), "ABC.csv", "day/ABC.csv", NOON, 2),
        ("XYZ", Decimal("2.50"), "XYZ.csv", "more.zip/in/XYZ.csv", NOON, 2),
    ]
    assert rows(here.read) == expected
    assert here.unbalanced() == []
    places = [position_of(row["_position"]) for row in here.books.register("quotes").to_pylist()]
    names = {origin["delivery"] for origin in origins_at(here.books, places).values()}
    assert names == {"day/ABC.csv", "more.zip/in/XYZ.csv"}
    # The same books, made from the tape alone.
    again = Deployment(prices(), Settings(project=tmp_path, root=tmp_path / "again"))
    for folder in (here.books.layout.tape("raw"), here.books.layout.tape_batches("raw")):
        shutil.copytree(folder, again.home / folder.relative_to(here.home))
    again.run_once()
    assert rows(again.read) == expected


def test_a_record_that_is_sent_again_comes_from_the_same_file(tmp_path: Path) -> None:
    with Trial(prices(), tmp_path, clock=lambda: NOON) as trial:
        trial.put("raw", ["1.50", "x"], "price", file="day/ABC.csv")
        trial.advance()
        trial.redrive(b"3.50")
        assert rows(trial.read) == [
            ("ABC", Decimal("1.50"), "ABC.csv", "day/ABC.csv", NOON, 1),
            ("ABC", Decimal("3.50"), "ABC.csv", "day/ABC.csv", NOON, 2),
        ]
        assert trial.unbalanced() == []
        trial.tidy()
        assert trial.unbalanced() == []


def test_records_without_a_file_are_read_beside_those_with_one(tmp_path: Path) -> None:
    with Trial(prices(), tmp_path, clock=lambda: NOON) as trial:
        trial.put("raw", ["1.50"], "price")  # as from before meta was asked for
        trial.put("raw", ["2.50"], "price", file="ABC.csv")
        trial.advance()
        files = {row["price"]: row["file"]["path"] for row in trial.read("quotes")}
        assert files == {Decimal("1.50"): None, Decimal("2.50"): "ABC.csv"}
        assert {row["file"]["line"] for row in trial.read("quotes")} == {1}
        assert trial.unbalanced() == []
