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


def full_step(raw: Stream, facts: Snapshot) -> DataFrame:
    return raw.join(facts, "id", "full")


def left_of_the_reference_step(raw: Stream, facts: Snapshot) -> DataFrame:
    return facts.join(raw, "id", "left")


def self_join_step(raw: Stream) -> DataFrame:
    return raw.join(raw.select("id"), "id")


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
        (full_step, "FULL OUTER join. Use a left join from the stream"),
        (left_of_the_reference_step, "LEFT OUTER join. Use a left join from the stream"),
        (self_join_step, "joins its stream to itself"),
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


@pytest.mark.parametrize("how", ["left", "inner"])
def test_joins_to_references_and_explodes_are_fine(spark: Any, how: str) -> None:
    def rows(raw: Stream, facts: Snapshot) -> DataFrame:
        return raw.join(facts, "id", how).select("*", F.explode("tags").alias("tag"))

    check(spark, rows)


def highest_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.max("amount").alias("most"))


def ratio_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg((F.sum("amount") / F.count("*")).alias("mean"))


def distinct_count_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.count_distinct("at").alias("times"))


def distinct_average_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.expr("avg(distinct amount)").alias("mean"))


def after_step(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.sum("amount").alias("a")).withColumn("b", F.col("a") * 2)


@pytest.mark.parametrize(
    "step", [highest_step, ratio_step, distinct_count_step, distinct_average_step, after_step]
)
def test_measures_that_do_not_add_up_are_refused(spark: Any, step: Any) -> None:
    with pytest.raises(DeclarationError, match="rates, minima and running totals"):
        check(spark, None, step, key="id")


def double_sum(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.sum(F.col("rate")).alias("total"))


def double_average(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.avg(F.col("rate") * 2).alias("mean"))


def text_average(rows: Stream) -> DataFrame:
    return rows.groupBy("id").agg(F.avg("id").alias("mean"))


@pytest.mark.parametrize(
    ("summary", "line"),
    [
        (double_sum, 'F.sum(F.col("rate").cast("decimal(18,4)")).alias("total")'),
        (
            double_average,
            'F.avg(F.expr("(rate * CAST(2 AS DOUBLE))").cast("decimal(18,4)")).alias("mean")',
        ),
        (text_average, 'F.avg(F.col("id").cast("decimal(18,4)")).alias("mean")'),
    ],
)
def test_doubles_are_refused_with_the_cast_to_paste(spark: Any, summary: Any, line: str) -> None:
    def rows(raw: Stream) -> DataFrame:
        return raw.withColumn("rate", F.col("amount").cast("double"))

    with pytest.raises(DeclarationError) as refused:
        check(spark, rows, summary, key="id")
    assert f"\n    {line}\n" in str(refused.value)

    def mended(rows: Stream) -> DataFrame:
        return rows.groupBy("id").agg(eval(line, {"F": F}))

    check(spark, rows, mended, key="id")


def in_one_piece(rows: DataFrame, column: Any) -> DataFrame:
    """Out of sight of the summary's own source."""
    return rows.groupBy(column).count()


def unseen_window(rows: Stream) -> DataFrame:
    return in_one_piece(rows, getattr(F, "window")("at", "1 hour"))  # noqa: B009


def unseen_session(rows: Stream) -> DataFrame:
    return in_one_piece(rows, getattr(F, "session_window")("at", "1 hour").start)  # noqa: B009


def struct_step(rows: Stream) -> DataFrame:
    return rows.groupBy(F.struct("id", "at").alias("pair")).count()


def list_step(rows: Stream) -> DataFrame:
    return rows.groupBy("tags").count()


def twice_step(rows: Stream) -> DataFrame:
    return rows.groupBy(F.window("at", "1 hour")).agg(F.sum("amount").alias("window_end"))


@pytest.mark.parametrize(
    ("step", "key", "words"),
    [
        (unseen_window, "window", r"Write key=\['window_start', 'window_end'\]"),
        (unseen_session, "session_window.start", "groups by session_window"),
        (struct_step, "pair", r"groups by 'pair'.*such as pair.id"),
        (list_step, "tags", r"groups by 'tags'.*array<string>"),
        (twice_step, "window", "makes the column 'window_end' twice"),
    ],
)
def test_a_key_that_is_no_plain_value_is_refused(
    spark: Any, step: Any, key: str, words: str
) -> None:
    with pytest.raises(DeclarationError, match=words):
        check(spark, None, step, key=key)


def whole_window(rows: Stream) -> DataFrame:
    return rows.groupBy(F.window("at", "1 hour"), "id").count()


def named_window(rows: Stream) -> DataFrame:
    hour = F.window("at", "1 hour", "10 minutes").alias("window")
    return rows.groupBy(hour, "id").count()


def window_of_a_column(rows: Stream) -> DataFrame:
    return rows.withColumn("window", F.window("at", "1 hour")).groupBy("window", "id").count()


def window_taken_apart(rows: Stream) -> DataFrame:
    counts = rows.groupBy(F.window("at", "1 hour"), "id").count()
    start, end = F.col("window.start"), F.col("window")["end"]
    return counts.select(start.alias("window_start"), end.alias("window_end"), "id", "count")


@pytest.mark.parametrize("key", [["window", "id"], ["window_start", "window_end", "id"]])
@pytest.mark.parametrize("step", [whole_window, named_window, window_of_a_column])
def test_a_window_is_a_key(spark: Any, step: Any, key: list[str]) -> None:
    check(spark, None, step, key=key, time=key[0], width="1 hour")


def test_a_window_may_be_taken_apart_after_the_aggregation(spark: Any) -> None:
    check(spark, None, window_taken_apart, key=["window_start", "window_end", "id"])


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
