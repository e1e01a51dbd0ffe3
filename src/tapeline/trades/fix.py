"""A broker's FIX log as books: fills, corrections and busts, summed up by quarter of an hour."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_quarantine

WINDOW = "15 minutes"
NO_CURRENCY = "XXX"  # ISO 4217: a transaction without one

pipeline = Pipeline("fills")
pipeline.source("raw_messages", Files("fix/", format="fix"))


# A correction and a bust name the fill they change by its ExecID, which is its sender's own.
@pipeline.table(
    key=["sender", "trade_id"],
    sequence_by="version",
    apply_as_deletes="action = 'CANCEL'",
    time="traded_at",
)
@expect_or_quarantine("traded_at is present", "traded_at is not null")
@expect_or_quarantine("side is BUY or SELL", "side in ('BUY', 'SELL')")
@expect_or_quarantine("quantity is above zero", "quantity > 0")
@expect_or_quarantine("price is present", "price is not null")
def fills(raw_messages: Stream) -> DataFrame:
    """One row per fill; messages that are no trades are left out."""
    return raw_messages.filter(F.col("action").isNotNull()).withColumns(
        {
            "currency": F.coalesce("currency", F.lit(NO_CURRENCY)),
            "amount": F.col("quantity") * F.col("price"),
        }
    )


@pipeline.summary(key=["window_start", "currency"], time="window_start", width=WINDOW)
def fill_summary(fills: Stream) -> DataFrame:
    """Money bought and sold in each quarter of an hour, by currency."""
    window_start = F.window("traded_at", WINDOW).start.alias("window_start")
    return fills.groupBy(window_start, "currency").agg(
        F.sum(_of("BUY")).alias("total_buy"),
        F.sum(_of("SELL")).alias("total_sell"),
        F.count("*").alias("fills"),
    )


def _of(side: str) -> Column:
    nothing = F.lit(0).cast("decimal(37,14)")
    return F.when(F.col("side") == side, F.col("amount")).otherwise(nothing)
