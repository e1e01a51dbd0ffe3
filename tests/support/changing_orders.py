"""Orders whose pipeline is changed while it has books, and their oracle in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_quarantine
from tests.support.corrected_orders import SCHEMA, record
from tests.support.plain_compute import Row, Twin

MONEY = pa.decimal128(22, 2)
WHEN = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Code:
    """What a user may have written in the file."""

    least: int = 0  # amounts above it are kept
    rate: int = 2
    minutes: int = 15
    by_side: bool = True
    fees: bool = True
    large: bool = True
    counts: bool = False
    cents: bool = False  # a further measure

    @property
    def key(self) -> tuple[str, ...]:
        return ("quarter", "side") if self.by_side else ("quarter",)


def pipeline(code: Code) -> Pipeline:
    found = Pipeline("changing", final_after="1 hour")
    found.source("raw", Files("landing/", schema=SCHEMA))

    @found.table(
        key="id",
        sequence_by="coalesce(v, 1)",
        apply_as_deletes="event = 'CANCEL'",
        time="at",
        late_after="10 minutes",
    )
    @expect_or_quarantine("amount is large enough", f"amount > {code.least}")
    def rows(raw: Stream) -> DataFrame:
        return raw

    @found.summary(key=code.key, time="quarter", width=f"{code.minutes} minutes")
    def totals(rows: Stream) -> DataFrame:
        quarter = F.window("at", f"{code.minutes} minutes").start.alias("quarter")
        sums = F.sum("amount").alias("amount"), F.count("*").alias("n")
        cents = [F.sum(F.col("amount") * 100).alias("cents")] if code.cents else []
        return rows.groupBy(quarter, *code.key[1:]).agg(*sums, *cents)

    if code.large:

        @found.table
        def large(rows: Stream) -> DataFrame:
            return rows.filter("amount >= 10").withColumn("fee", F.col("amount") * code.rate)

        if code.fees:

            @found.summary(key="side")
            def fees(large: Stream) -> DataFrame:
                return large.groupBy("side").agg(F.sum("fee").alias("fee"))

    if code.counts:

        @found.summary(key="id")
        def counts(rows: Stream) -> DataFrame:
            return rows.groupBy("id").agg(F.count("*").alias("n"))

    return found


def twins(code: Code) -> dict[str, Twin]:
    """The same in plain Python."""

    def fee(row: Row) -> Iterable[Row]:
        return [{**row, "fee": row["amount"] * code.rate}] if row["amount"] >= 10 else []

    def total(row: Row) -> Iterable[Row]:
        share = {"quarter": _window(row["at"], code), "amount": row["amount"], "n": 1}
        if code.cents:
            share["cents"] = row["amount"] * 100
        return [{**share, "side": row["side"]} if code.by_side else share]

    side = (("side", pa.string()),) if code.by_side else ()
    cents = (("cents", MONEY),) if code.cents else ()
    return {
        "rows": Twin(
            holds={"amount is large enough": lambda row: row["amount"] > code.least},
            sequence=lambda row: 1 if row["v"] is None else row["v"],
            deletes=lambda row: row["event"] == "CANCEL",
            version=str(code.least),
        ),
        "totals": Twin(
            total,
            (("quarter", WHEN), *side, ("amount", MONEY), ("n", pa.int64()), *cents),
            version=f"{code.minutes}{code.by_side}{code.cents}",
        ),
        "large": Twin(fee, (("fee", MONEY),), version=str(code.rate)),
        "fees": Twin(
            lambda row: [{"side": row["side"], "fee": row["fee"]}],
            (("side", pa.string()), ("fee", MONEY)),
        ),
        "counts": Twin(
            lambda row: [{"id": row["id"], "n": 1}], (("id", pa.string()), ("n", pa.int64()))
        ),
    }


def _window(moment: datetime, code: Code) -> datetime:
    return moment - timedelta(minutes=moment.minute % code.minutes, seconds=moment.second)


def expected(sent: list[tuple[int, int]], code: Code) -> dict[str, Any]:
    """One static pass over what was sent, with the code as it is now."""
    totals: dict[Any, tuple[Decimal, int]] = {}
    fees: dict[str, Decimal] = {}
    counts: Counter[str] = Counter()
    highest: dict[int, int] = {}
    for key, version in sent:
        found = record(key, version)
        cancels = found["event"] == "CANCEL"
        if cancels or Decimal(found["amount"]) > code.least:
            highest[key] = max(version, highest.get(key, 0))
    for key, version in highest.items():
        row = record(key, version)
        if row["event"] == "CANCEL":
            continue
        amount, side = Decimal(row["amount"]), str(row["side"])
        window = _window(datetime.fromisoformat(str(row["at"])), code)
        place = (window, side) if code.by_side else (window,)
        before = totals.get(place, (Decimal(0), 0))
        totals[place] = (before[0] + amount, before[1] + 1)
        counts[str(row["id"])] += 1
        if amount >= 10:
            fees[side] = fees.get(side, Decimal(0)) + code.rate * amount
    found_all: dict[str, Any] = {"totals": totals}
    if code.large and code.fees:
        found_all["fees"] = fees
    if code.counts:
        found_all["counts"] = dict(counts)
    return found_all
