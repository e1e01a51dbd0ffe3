"""Before any data is touched, Spark's analysis refuses what cannot be kept right."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import DeclarationError, Files, Pipeline, Snapshot, Stream, expect
from tapeline.spark.compile import prepare
from tapeline.testing import plan_of

pa = pytest.importorskip("pyarrow")
SCHEMA = "id string, at timestamp, amount decimal(10,2), tags array<string>"
FACTS = pa.table({"id": ["a"], "name": ["A"]})


def check(spark: Any, table: Any = None, summary: Any = None, **said: Any) -> None:
    pipeline = Pipeline("checked")
    pipeline.source("raw", Files("landing/", schema=SCHEMA))
    pipeline.reference("facts", Files("facts.csv", format="csv"))

    def rows(raw: Stream) -> DataFrame:
        return raw

    pipeline.table(table or rows)
    if summary is not None:
        pipeline.summary(**said)(summary)
    prepare(spark, plan_of(pipeline), {"facts": FACTS})


def test_an_unknown_column_is_refused_with_its_place(spark: Any) -> None:
    def rows(raw: Stream) -> DataFrame:
        return raw.withColumn("double", F.col("amuont") * 2)

    with pytest.raises(DeclarationError, match=r"test_checks.py:\d+: rows\(\).*amuont"):
        check(spark, rows)
    # Spark would print the same as pages of JSON, on a logger of its own.
    assert not logging.getLogger("DataFrameQueryContextLogger").isEnabledFor(logging.ERROR)


def test_an_expectation_over_an_unknown_column_is_refused(spark: Any) -> None:
    @expect("amount is there", "amuont > 0")
    def rows(raw: Stream) -> DataFrame:
        return raw

    with pytest.raises(DeclarationError, match="amuont"):
        check(spark, rows)


def test_a_step_must_keep_the_position(spark: Any) -> None:
    def rows(raw: Stream) -> DataFrame:
        return raw.select("id", "amount")

    with pytest.raises(DeclarationError, match="loses '_position'"):
        check(spark, rows)


def inner_step(raw: Stream, facts: Snapshot) -> DataFrame:
    return raw.join(facts, "id")


def aggregate_step(raw: Stream) -> DataFrame:
    return counted(raw)  # not visible in the step's own source, so only the plan shows it


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("_position", "id").count()


def distinct_step(raw: Stream) -> DataFrame:
    return raw.distinct()


def random_step(raw: Stream) -> DataFrame:
    return raw.withColumn("luck", F.rand())


def clock_step(raw: Stream) -> DataFrame:
    return raw.withColumn("seen", F.current_timestamp())


def python_step(raw: Stream) -> DataFrame:
    return raw.withColumn("long", F.udf(len, "int")("id"))


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (inner_step, "Use a left join"),
        (aggregate_step, "uses Aggregate"),
        (distinct_step, "uses Deduplicate|uses Distinct"),
        (random_step, "its result may differ"),
        (clock_step, "machine's clock"),
        (python_step, "a Python function per row"),
    ],
)
def test_what_depends_on_more_than_the_record_is_refused(spark: Any, step: Any, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        check(spark, step)


def test_left_joins_and_explodes_are_fine(spark: Any) -> None:
    def rows(raw: Stream, facts: Snapshot) -> DataFrame:
        return raw.join(facts, "id", "left").select("*", F.explode("tags").alias("tag"))

    check(spark, rows)


def average_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.avg("amount").alias("mean"))


def highest_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.max("amount").alias("most"))


def ratio_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg((F.sum("amount") / F.count("*")).alias("mean"))


def distinct_count_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.count_distinct("at").alias("times"))


def float_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.sum(F.col("amount").cast("double")).alias("total"))


def after_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.sum("amount").alias("a")).withColumn("b", F.col("a") * 2)


@pytest.mark.parametrize(
    "step", [average_step, highest_step, ratio_step, distinct_count_step, float_step, after_step]
)
def test_measures_that_do_not_add_up_are_refused(spark: Any, step: Any) -> None:
    with pytest.raises(DeclarationError, match="averages, rates, minima"):
        check(spark, None, step, key="id")


def test_the_key_is_what_is_grouped_by(spark: Any) -> None:
    def totals(rows: Stream) -> DataFrame:
        return rows.groupBy("id", "at").agg(F.sum("amount").alias("total"))

    with pytest.raises(DeclarationError, match="also groups by at"):
        check(spark, None, totals, key="id")
    with pytest.raises(DeclarationError, match="does not group by it"):
        check(spark, None, totals, key=["id", "day"])


def test_a_rename_behind_the_aggregation_is_fine(spark: Any) -> None:
    def totals(rows: Stream) -> DataFrame:
        summed = rows.groupBy(F.col("id").alias("i")).agg(F.sum("amount").alias("t"))
        return summed.withColumnRenamed("i", "id").withColumnRenamed("t", "total")

    check(spark, None, totals, key="id")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": "uid"}, r"the key 'uid', which neither 'raw' nor the step's own rows have"),
        ({"key": "tagg"}, r"the key 'tagg'.*Did you mean 'tag'"),
        ({"key": "tag", "content_ignores": "amont"}, r"ignores 'amont'.*Did you mean 'amount'"),
        ({"key": "tag"}, r"copies 'tags' into every row.*content_ignores=\['tags'\]"),
        ({"key": "tag", "content_ignores": "tags", "sequence_by": "tag"}, "of type string"),
    ],
)
def test_a_key_that_the_step_makes_must_be_made(spark: Any, options: Any, words: str) -> None:
    pipeline = Pipeline("made")
    pipeline.source("raw", Files("landing/", schema=SCHEMA))

    @pipeline.table(**options)
    def rows(raw: Stream) -> DataFrame:
        return raw.withColumn("tag", F.explode("tags"))

    with pytest.raises(DeclarationError, match=words):
        prepare(spark, plan_of(pipeline), {})
