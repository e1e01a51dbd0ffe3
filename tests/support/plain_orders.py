"""The steps that the pipelines of orders share, and their twins."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Pipeline, Stream
from tests.support.plain_compute import Row, Twin

FEE = pa.decimal128(14, 2)
# Spark's type of a sum has ten digits more.
MONEY, FEES_SUM = pa.decimal128(22, 2), pa.decimal128(24, 2)


def add_steps(found: Pipeline) -> None:
    """What all of them compute from the table `rows`."""

    @found.table
    def large(rows: Stream) -> DataFrame:
        return rows.filter("amount >= 10").withColumn("fee", F.col("amount") * F.lit(2))

    @found.summary(key=["quarter", "side"], time="quarter", width="15 minutes")
    def totals(rows: Stream) -> DataFrame:
        quarter = F.window("at", "15 minutes").start.alias("quarter")
        sums = F.sum("amount").alias("amount"), F.count("*").alias("n")
        return rows.groupBy(quarter, "side").agg(*sums)

    @found.summary(key="side")
    def fees(large: Stream) -> DataFrame:
        return large.filter("side = 'BUY'").groupBy("side").agg(F.sum("fee").alias("fee"))


def above_zero(row: Row) -> bool:
    return row["amount"] is not None and row["amount"] > 0


def _large(row: Row) -> Iterable[Row]:
    if row["amount"] is not None and row["amount"] >= 10:
        yield {**row, "fee": row["amount"] * 2}


def _totals(row: Row) -> Iterable[Row]:
    at = row["at"]
    if at is not None:  # a window is of a time
        quarter = at - timedelta(
            minutes=at.minute % 15, seconds=at.second, microseconds=at.microsecond
        )
        # A sum takes a null for nothing.
        amount = Decimal(0) if row["amount"] is None else row["amount"]
        yield {"quarter": quarter, "side": row["side"], "amount": amount, "n": 1}


def _fees(row: Row) -> Iterable[Row]:
    if row["side"] == "BUY":
        yield {"side": row["side"], "fee": row["fee"]}


LARGE = Twin(_large, (("fee", FEE),))
TOTALS = Twin(
    _totals,
    (
        ("quarter", pa.timestamp("us", "UTC")),
        ("side", pa.string()),
        ("amount", MONEY),
        ("n", pa.int64()),
    ),
)
FEES = Twin(_fees, (("side", pa.string()), ("fee", FEES_SUM)))
TWINS_OF_STEPS = {"large": LARGE, "totals": TOTALS, "fees": FEES}
