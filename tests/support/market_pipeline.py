"""The normalised files of real markets, as a pipeline's file that processes can load."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream


def market() -> Pipeline:
    """The normalised files of real markets: neither rounded nor de-duplicated by content."""
    pipeline = Pipeline("market")
    schema = (
        "seq bigint, event_time_utc timestamp, symbol string, price decimal(18,8), "
        "qty decimal(18,8), side string, arrival_time_utc timestamp, trade_id string"
    )
    pipeline.source("raw_trades", Files("landing/", format="csv", schema=schema))

    @pipeline.table(time="event_time_utc", future_after="2 seconds")
    def trades(raw_trades: Stream) -> DataFrame:
        value = (F.col("price") * F.col("qty")).cast("decimal(28,16)")
        return raw_trades.withColumns({"value": value})

    @pipeline.summary(key="window_start", time="window_start", width="15 minutes")
    def trade_summary(trades: Stream) -> DataFrame:
        window_start = F.window("event_time_utc", "15 minutes").start.alias("window_start")
        return trades.groupBy(window_start).agg(
            F.sum(F.when(F.col("side") == "BUY", F.col("value")).otherwise(0)).alias("total_buy"),
            F.sum(F.when(F.col("side") == "SELL", F.col("value")).otherwise(0)).alias("total_sell"),
            F.sum("value").alias("total_value"),
            F.sum("qty").alias("total_qty"),
            F.count("*").alias("trade_count"),
        )

    return pipeline


pipeline = market()
