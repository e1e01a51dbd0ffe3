"""The proof: one value changed in any table is found, with its table and its batch."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tapeline.books.audit import Check
from tapeline.books.fold import write_balances
from tapeline.settings import HousekeepingSettings
from tapeline.testing import Trial, unbalanced
from tests.support.corrected_orders import pipeline, record

pytestmark = pytest.mark.usefixtures("spark")

# Table, column, and the words that the audit must find for it.
CHANGES = [
    ("bronze/raw", "raw", "raw: hash of its records"),
    ("bronze/raw_batches", "bytes", "raw: hash of its batches"),
    ("silver/rows", "amount", "rows: hash of its rows"),
    ("silver/rows", "_verdict", "rows: each verdict"),
    ("silver/large", "fee", "large: hash of its rows"),
    ("gold/totals", "amount", "totals: amount"),
    ("gold/totals", "quarter", "totals's journal: hash of its rows"),
    ("gold/totals_links", "_position", "totals's links: hash of its rows"),
    ("gold/fees", "fee", "fees: fee"),
    ("gold/totals_balances", "amount", "totals: balances"),
    ("commits", "body", "commits: each row"),
]
CHANGED_BATCH = 2


@pytest.fixture(scope="module", params=["as written", "compacted"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Books of four batches, with corrections among them."""
    trial = Trial(pipeline(), tmp_path_factory.mktemp("books"))
    for batch in ([(1, 2), (2, 1)], [(3, 1), (4, 2), (2, 2)], [(1, 4), (5, 3)], [(3, 3)]):
        trial.feed(raw=[record(key, version) for key, version in batch])
    write_balances(trial.flow.layout, trial.plan.pipeline.summaries["totals"], CHANGED_BATCH)
    if request.param == "compacted":
        trial.tidy(HousekeepingSettings(removed_files_hours=0))
    assert wrong(trial) == []
    return trial


def wrong(trial: Trial, full: bool = True) -> list[Check]:
    return unbalanced(trial.books, full)


@pytest.mark.parametrize(("table", "column", "words"), CHANGES)
def test_one_changed_value_is_found(home: Trial, table: str, column: str, words: str) -> None:
    folder = home.flow.layout.home / table
    changed = change_one(folder, column)
    try:
        found = wrong(home)
        assert words in " ".join(check.what for check in found), found
        assert {check.batch for check in found if words in check.what} == {CHANGED_BATCH}
        # What balanced before is not looked at again by default.
        assert wrong(home, full=False) == [] or table.endswith("balances")
    finally:
        shutil.move(changed.with_suffix(".kept"), changed)
    assert wrong(home) == []


def change_one(folder: Path, column: str) -> Path:
    """Change one value of one row of a batch, and keep the file as it was beside it."""
    for path in sorted(folder.glob("*.parquet")):
        rows = pq.read_table(path)
        values = rows[column].to_pylist()
        numbers = next((rows[n].to_pylist() for n in ("_batch", "batch") if n in rows.schema.names),
                       [CHANGED_BATCH] * len(values))  # fmt: skip
        if "part" in rows.schema.names:
            numbers = rows["part"].to_pylist()
        for place, value in enumerate(values):
            if numbers[place] == CHANGED_BATCH and value not in (None, ""):
                values[place] = other(value)
                shutil.copy(path, path.with_suffix(".kept"))
                kind = rows.schema.field(column).type
                at = rows.schema.get_field_index(column)
                pq.write_table(rows.set_column(at, column, pa.array(values, kind)), path)
                return path
    raise AssertionError(f"{folder} has no {column} in batch {CHANGED_BATCH}")


def other(value: Any) -> Any:
    """Another value of the same kind."""
    changed: dict[type, Callable[[Any], Any]] = {
        Decimal: lambda v: v + 1,
        int: lambda v: v + 1,
        str: lambda v: v.replace("kept", "dropped") if "kept" in v else f"{v} ",
        bytes: lambda v: v + b" ",
        datetime: lambda v: v + timedelta(minutes=15),
        dict: lambda v: {**v, "at": v["at"] + 1},
    }
    return changed[type(value)](value)


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ("silver/rows", "rows"),
        ("gold/totals", "totals"),
        ("gold/totals_links", "totals"),
        ("bronze/raw", "raw"),
        ("bronze/raw_batches", "raw"),
    ],
)
def test_a_table_that_is_gone_is_named(home: Trial, table: str, word: str) -> None:
    folder = home.flow.layout.home / table
    hidden = folder.with_name("hidden")
    folder.rename(hidden)
    try:
        assert any(check.what.startswith(f"{word}:") for check in wrong(home))
    finally:
        hidden.rename(folder)
