"""The quarantine as a workplace: fix the cause, send again, or dismiss; all of it on record."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, OperationError, Pipeline, Snapshot, Stream, expect_or_quarantine
from tapeline.books.operator import DISMISS, REDRIVE
from tapeline.books.quarantine import Actor, decide, show
from tapeline.operate.dry_run import rehearse
from tapeline.testing import Trial, quarantined, unbalanced, why

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = "id string, v int, at timestamp, item string, amount decimal(12,2)"


def pipeline() -> Pipeline:
    found = Pipeline("shop")
    found.source("raw", Files("landing/", schema=SCHEMA))
    found.reference("prices", Files("prices.csv", format="csv", schema="item string, vat int"))

    @found.table(key="id", sequence_by="coalesce(v, 1)", time="at")
    @expect_or_quarantine("amount is above zero", "amount > 0")
    def sales(raw: Stream) -> DataFrame:
        return raw

    @found.table
    @expect_or_quarantine("item is known", "vat is not null")
    def taxed(sales: Stream, prices: Snapshot) -> DataFrame:
        return sales.join(prices, "item", "left")

    @found.summary(key="item")
    def totals(taxed: Stream) -> DataFrame:
        return taxed.groupBy("item").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))

    return found


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    (tmp_path / "prices.csv").write_text("item,vat\ntea,7\n")
    return Trial(pipeline(), tmp_path)


def sale(key: str, item: str = "tea", amount: str = "10", v: int = 1) -> dict[str, Any]:
    return {"id": key, "v": v, "at": "2026-11-13T10:00:00Z", "item": item, "amount": amount}


def totals(trial: Trial) -> dict[str, tuple[Decimal, int]]:
    return {row["item"]: (row["amount"], row["n"]) for row in trial.read("totals")}


def balanced(trial: Trial) -> bool:
    return unbalanced(trial.books, full=True) == []


def test_fixed_reference_data_lets_a_record_in_once_with_its_cause(
    trial: Trial, tmp_path: Path
) -> None:
    trial.feed(raw=[sale("a"), sale("b", item="mate"), sale("c", amount="-1")])
    assert totals(trial) == {"tea": (10, 1)}
    listed = quarantined(trial.books)
    assert {(row["table"], row["key"], *row["reasons"]) for row in listed} == {
        ("sales", "c", "amount is above zero"),
        ("taxed", "b", "item is known"),
    }
    # Still broken: it stays, and its reason is the new one.
    assert trial.redrive(table="taxed") == 1
    assert trial.verdicts("taxed") == {"kept": 1, "quarantined": 1}
    (tmp_path / "prices.csv").write_text("item,vat\ntea,7\nmate,19\n")
    assert trial.redrive(reason="item is known") == 1
    assert totals(trial) == {"tea": (10, 1), "mate": (10, 1)}
    (revision,) = why(trial.books, "totals", ["mate"])
    assert (revision.cause, [one["record"] for one in revision.records]) == ("redrive", ["b"])
    assert trial.verdicts("taxed") == {"kept": 2}
    assert trial.redrive(table="taxed") == 0  # nothing is left there
    assert balanced(trial)
    # A correction of the redriven record takes back what the redrive stored, also after a restart.
    again = Trial(pipeline(), tmp_path)
    again.feed(raw=[sale("b", item="tea", amount="3", v=2)])
    assert totals(again) == {"tea": (13, 2)}
    assert balanced(again)


def test_a_rehearsal_says_what_would_change_and_changes_nothing(
    trial: Trial, tmp_path: Path
) -> None:
    trial.feed(raw=[sale("a", item="mate"), sale("b", item="rum")])
    (tmp_path / "prices.csv").write_text("item,vat\ntea,7\nmate,19\n")
    rows = quarantined(trial.books)
    found = rehearse(trial.plan, trial.settings, trial.books, rows, None)
    verdicts = {one["position"]: (one["verdict"], one["reasons"]) for one in found["records"]}
    assert sorted(verdicts.values()) == [("kept", []), ("quarantined", ["item is known"])]
    (change,) = found["changes"]
    assert change["change"] == {"item": "mate", "amount": "10.00", "n": "1", "_entries": "1"}
    assert totals(trial) == {}
    assert quarantined(trial.books) == rows


def test_a_corrected_record_takes_the_place_of_the_broken_one(trial: Trial) -> None:
    trial.feed(raw=[sale("a", amount="-1"), b"not json"])
    (row,) = quarantined(trial.books, reason="above zero")
    fixed = json.dumps(sale("a", amount="8")).encode()
    trial.redrive(fixed, who="ann", positions=[row["position"]])
    assert totals(trial) == {"tea": (8, 1)}
    assert trial.verdicts("sales") == {"kept": 1, "quarantined": 1}
    shown = show(trial.books, row["position"])
    assert (shown["delivery"], shown["line"]) == ("a test's records", 1)
    assert json.loads(shown["record"])["amount"] == "-1"
    (done,) = shown["acts"]
    assert (done["act"], done["who"], done["record"]) == ("redrive", "ann", fixed)
    assert balanced(trial)
    # It holds its key now: the same record from the sender is a repeat.
    trial.feed(raw=[sale("a", amount="8")])
    assert trial.verdicts("sales")["duplicate"] == 1


def test_acts_ride_along_with_new_records_and_each_counts_once(trial: Trial) -> None:
    trial.feed(raw=[sale("a", amount="-1"), sale("b", amount="-2"), sale("c")])
    rows = quarantined(trial.books)
    signed = Actor(datetime.now(UTC), "ann")
    fixed = json.dumps(sale("a", amount="5")).encode()
    first = [row for row in rows if b'"a"' in row["record"]]
    decide(trial.books, REDRIVE, first, signed, fixed)
    decide(trial.books, REDRIVE, first, signed, fixed)  # said twice
    decide(trial.books, DISMISS, [row for row in rows if row not in first], signed)
    trial.feed(raw=[sale("d", amount="1"), sale("a", amount="5")])
    assert totals(trial) == {"tea": (16, 3)}
    assert trial.verdicts("sales") == {"kept": 3, "dismissed": 1, "duplicate": 1}
    decide(trial.books, REDRIVE, first, signed, fixed)  # said once more: it is not there any more
    trial.advance()
    assert totals(trial) == {"tea": (16, 3)}
    assert quarantined(trial.books) == []
    assert balanced(trial)


def test_what_makes_no_sense_is_refused(trial: Trial) -> None:
    trial.feed(raw=[sale("a", item="mate"), sale("b", item="mate")])
    rows = quarantined(trial.books)
    signed = Actor(datetime.now(UTC))
    with pytest.raises(OperationError, match="exactly one"):
        decide(trial.books, REDRIVE, rows, signed, b"{}")
    with pytest.raises(OperationError, match="where records enter"):
        decide(trial.books, REDRIVE, rows[:1], signed, b"{}")
    with pytest.raises(OperationError, match="is not a position"):
        quarantined(trial.books, positions=["../etc"])
    with pytest.raises(OperationError, match="Did you mean 'taxed'"):
        quarantined(trial.books, table="taxd")
