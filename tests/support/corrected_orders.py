"""Orders that are corrected and cancelled, in any order of arrival, and their oracle."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame

from tapeline import Files, Pipeline, Stream, expect_or_quarantine
from tests.support.plain_compute import Twin
from tests.support.plain_orders import TWINS_OF_STEPS, above_zero, add_steps

START = datetime(2026, 11, 13, 10, tzinfo=UTC)
SCHEMA = "id string, v int, event string, at timestamp, side string, amount decimal(12,2)"


def pipeline() -> Pipeline:
    found = Pipeline("orders", final_after="1 hour")
    found.source("raw", Files("landing/", schema=SCHEMA))

    @found.table(
        key="id",
        sequence_by="coalesce(v, 1)",
        apply_as_deletes="event = 'CANCEL'",
        time="at",
        late_after="10 minutes",
    )
    @expect_or_quarantine("amount is above zero", "amount > 0")
    def rows(raw: Stream) -> DataFrame:
        return raw

    add_steps(found)
    return found


TWINS = {
    "rows": Twin(
        holds={"amount is above zero": above_zero},
        sequence=lambda row: 1 if row["v"] is None else row["v"],
        deletes=lambda row: row["event"] == "CANCEL",
    ),
    **TWINS_OF_STEPS,
}


def record(key: int, version: int) -> dict[str, str | int]:
    """A version of a record: its content follows from key and version, side and time move."""
    number = key * 7 + version * 3
    return {
        "id": f"r{key}",
        "v": version,
        "event": "CANCEL" if number % 5 == 0 else "NEW" if version == 1 else "CORRECT",
        "at": (START + timedelta(minutes=number * 11 % 90)).isoformat(),
        "side": ("BUY", "SELL")[number % 2],
        "amount": str(Decimal(number * 137 % 3000 + 1) / 100),
    }


def expected(sent: list[tuple[int, int]]) -> tuple[Any, Any, Counter[str]]:
    """One static pass over what was sent, in plain Python: the highest version stands."""
    verdicts: Counter[str] = Counter()
    totals: dict[Any, tuple[Decimal, int]] = {}
    fees: dict[str, Decimal] = {}
    versions: dict[int, set[int]] = {}
    for key, version in sent:
        known = versions.setdefault(key, set())
        verdicts["duplicate" if version in known else "superseded"] += 1
        known.add(version)
    for key, known in versions.items():
        stands = record(key, max(known))
        cancelled = stands["event"] == "CANCEL"
        verdicts.update({"superseded": -1, ("applied" if cancelled else "kept"): 1})
        if cancelled:
            continue
        amount, side = Decimal(stands["amount"]), str(stands["side"])
        moment = datetime.fromisoformat(str(stands["at"]))
        quarter = moment - timedelta(minutes=moment.minute % 15)
        before = totals.get((quarter, side), (Decimal(0), 0))
        totals[quarter, side] = (before[0] + amount, before[1] + 1)
        if side == "BUY" and amount >= 10:
            fees[side] = fees.get(side, Decimal(0)) + 2 * amount
    return totals, fees, +verdicts
