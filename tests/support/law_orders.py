"""The pipeline of the laws, its records and its oracle: one static pass in plain Python."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame

from tapeline import Files, Pipeline, Stream, expect_or_drop, expect_or_quarantine
from tests.support.plain_compute import Twin
from tests.support.plain_orders import TWINS_OF_STEPS, above_zero, add_steps

START = datetime(2026, 11, 13, 10, tzinfo=UTC)


def pipeline() -> Pipeline:
    found = Pipeline("laws")
    schema = "id string, at timestamp, side string, amount decimal(12,2)"
    found.source("raw", Files("landing/", schema=schema))

    @found.table(key="id", time="at", late_after="10 minutes")
    @expect_or_quarantine("amount is above zero", "amount > 0")
    @expect_or_drop("side is not TEST", "side <> 'TEST'")
    def rows(raw: Stream) -> DataFrame:
        return raw

    add_steps(found)
    return found


TWINS = {
    "rows": Twin(
        holds={
            "amount is above zero": above_zero,
            "side is not TEST": lambda row: row["side"] is not None and row["side"] != "TEST",
        }
    ),
    **TWINS_OF_STEPS,
}


def record(number: int) -> dict[str, str]:
    """A record whose content follows from its number: a repeat is an exact repeat."""
    amount = Decimal(number * 37 % 2000 - 20) / 100  # some are not above zero
    side = ("BUY", "SELL", "BUY", "TEST")[number % 4]
    moment = START + timedelta(minutes=number * 7 % 240)
    return {"id": f"r{number}", "at": moment.isoformat(), "side": side, "amount": str(amount)}


def expected(numbers: list[int]) -> tuple[Any, Any, Counter[str]]:
    """One static pass over what was sent, in plain Python."""
    verdicts: Counter[str] = Counter()
    totals: dict[Any, tuple[Decimal, int]] = {}
    fee, seen = Decimal(0), set()
    bought = False
    for number in numbers:
        sent = record(number)
        amount, side = Decimal(sent["amount"]), sent["side"]
        if amount <= 0:
            verdicts["quarantined"] += 1
        elif side == "TEST":
            verdicts["dropped"] += 1
        elif number in seen:
            verdicts["duplicate"] += 1
        else:
            seen.add(number)
            verdicts["kept"] += 1
            moment = datetime.fromisoformat(sent["at"])
            quarter = moment - timedelta(minutes=moment.minute % 15)
            before = totals.get((quarter, side), (Decimal(0), 0))
            totals[quarter, side] = (before[0] + amount, before[1] + 1)
            if side == "BUY" and amount >= 10:
                fee, bought = fee + 2 * amount, True
    return totals, ({"BUY": fee} if bought else {}), verdicts
