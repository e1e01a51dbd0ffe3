"""The pipeline that set-up runs once, so that the archive has the classes of ordinary steps.

It reads nested JSON and CSV, checks, joins references, explodes, and sums by window and by key.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Csv, Files, Pipeline, Snapshot, Stream, expect, expect_or_quarantine

ORDER = """
    order_id string, version int, event string, placed_at timestamp, shop string,
    amount decimal(18,2), price double, due date,
    customer struct<name: string, country: string>,
    lines array<struct<item: string, pieces: bigint>>
"""
VISIT = "visit_id string, shop string, came_at timestamp, visitors int"
SHOPS = "shop string, zone string, opened date, minor_units int"

pipeline = Pipeline("training")
pipeline.source("raw_orders", Files("orders/", format="json", schema=ORDER))
pipeline.source("raw_visits", Files("visits/", format=Csv(), schema=VISIT))
pipeline.reference("shops", Files("reference/shops.csv", format="csv", schema=SHOPS))


@pipeline.table(
    key="order_id",
    sequence_by="coalesce(version, 1)",
    apply_as_deletes="upper(event) = 'CANCEL'",
    time="placed_at",
    late_after="5 minutes",
)
@expect_or_quarantine("amount is above zero", "amount > 0")
@expect_or_quarantine("event is known", "event in ('NEW', 'CORRECT', 'CANCEL')")
@expect("customer has a name", "length(customer.name) > 0")
def orders(raw_orders: Stream) -> DataFrame:
    """One checked row per order."""
    return raw_orders.withColumns(
        {
            "version": F.coalesce("version", F.lit(1)),
            "event": F.coalesce(F.upper("event"), F.lit("NEW")),
            "day": F.to_date(F.from_utc_timestamp("placed_at", "Asia/Tashkent")),
        }
    )


@pipeline.table
@expect_or_quarantine("shop is known", "zone is not null")
def placed_orders(orders: Stream, shops: Snapshot) -> DataFrame:
    """Orders with what is known of their shop."""
    cents = F.round(F.col("amount") * F.col("version"), 2).cast("decimal(27,4)")
    return orders.join(shops, "shop", "left").withColumns(
        {
            "cents": F.when(F.col("minor_units") == 0, F.round("amount", 0)).otherwise(cents),
            "country": F.concat(F.col("customer.country"), F.lit("-"), F.col("due").cast("string")),
        }
    )


@pipeline.table
def order_lines(orders: Stream) -> DataFrame:
    """One row per line of an order."""
    line = orders.withColumn("line", F.explode("lines"))
    return line.withColumns({"item": F.col("line.item"), "pieces": F.col("line.pieces")})


@pipeline.table(key=["visit_id"], time="came_at")
@expect_or_quarantine("visitors is above zero", "visitors > 0")
def visits(raw_visits: Stream) -> DataFrame:
    """One checked row per visit."""
    return raw_visits.where("shop is not null")


@pipeline.summary(key=["quarter", "shop"], time="quarter", width="15 minutes")
def orders_by_quarter(placed_orders: Stream) -> DataFrame:
    """Orders and their amounts in each quarter of an hour."""
    quarter = F.window("placed_at", "15 minutes").start.alias("quarter")
    bought = F.when(F.col("country").isNotNull(), F.col("cents")).otherwise(0)
    return placed_orders.groupBy(quarter, "shop").agg(
        F.sum(bought).alias("bought"), F.avg("amount").alias("mean"), F.count("*").alias("orders")
    )


@pipeline.summary(key=["shop", "day"])
def days(orders: Stream) -> DataFrame:
    """Orders by day."""
    return orders.groupBy("shop", "day").agg(F.count("*").alias("orders"))


@pipeline.summary(key=["shop"])
def visitors(visits: Stream) -> DataFrame:
    """Visitors by shop."""
    return visits.groupBy("shop").agg(F.sum("visitors").alias("visitors"))
