"""A user's columns may have the names that our own queries use for something else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_quarantine
from tapeline.books.audit import audit
from tapeline.books.operator import REDRIVE
from tapeline.books.quarantine import Actor, QuarantineFilter, decide, quarantined, show
from tapeline.books.revisions import why
from tapeline.testing import Trial

pytestmark = pytest.mark.usefixtures("spark")
NAMES = (
    *"abchjklnpqrstvw",
    *("source", "part", "at", "place", "batch", "key", "wanted", "stored", "recent"),
    *("order", "group", "select", "from", "where", "end", "table", "user", "all", "values"),
    *("register", "links", "tape", "listed", "shares", "standing", "ordinal", "raw", "event"),
)


def pipeline() -> Pipeline:
    found = Pipeline("names")
    columns = ", ".join(f"`{name}` int" for name in NAMES)
    found.source("records", Files("landing/", schema=f"id string, version int, {columns}"))

    @found.table(key="id", sequence_by="version")
    @expect_or_quarantine("a is above zero", "a > 0")
    def first(records: Stream) -> DataFrame:
        return records

    @found.table
    @expect_or_quarantine("b is above zero", "b > 0")
    def second(first: Stream) -> DataFrame:
        return first

    @found.summary(key=["s", "part", "order"])
    def sums(second: Stream) -> DataFrame:
        adds = [F.sum(name).alias(name) for name in NAMES if name not in ("s", "part", "order")]
        return second.groupBy("s", "part", "order").agg(*adds)

    found.view("lines", 'select "order", "group" + second."end" as n from second')
    return found


def record(key: str, version: int = 1, value: int = 1, **more: int) -> dict[str, Any]:
    return {"id": key, "version": version, **dict.fromkeys(NAMES, value), **more}


def test_any_name_of_a_column_is_a_users_own(tmp_path: Path) -> None:
    trial = Trial(pipeline(), tmp_path)
    trial.feed(records=[record("x"), record("y", a=0), record("z", b=0)])
    trial.feed(records=[record("x", 2, 5)])  # found among the latest rows
    listed = quarantined(trial.books, QuarantineFilter())
    assert {row["key"] for row in listed} == {"y", "z"}
    assert [show(trial.books, row["position"])["quarantined"] for row in listed]
    again = Trial(pipeline(), tmp_path, like=trial)
    again.feed(records=[record("x", 3, 7), record("z", 2)])  # found in the files
    decide(again.books, REDRIVE, listed, Actor(datetime.now(UTC), "ann", "a test"))
    again.flow.advance()
    (seven,) = [row for row in again.read("sums") if row["s"] == 7]
    assert {seven[name] for name in NAMES} == {7}
    assert [one.cause for one in why(again.books, "sums", ["5", "5", "5"])] == ["correction"] * 2
    assert again.read("lines") == [{"order": 7, "n": 14}, {"order": 1, "n": 2}]
    assert again.verdicts("second") == {"kept": 2}
    assert all(check.balances for check in audit(again.books, full=True))
