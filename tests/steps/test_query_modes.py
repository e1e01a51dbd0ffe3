"""Which operations go with which output mode: docs/spark.md says what Spark says, with remedies."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tapeline import DeclarationError, Pipeline, Query
from tapeline.plan import resolve
from tapeline.spark.queries import with_query_schemas
from tapeline.spark.query_checks import schema_of
from tests.support.doc_pages import REPOSITORY

Make = Callable[[SparkSession], DataFrame]
BOUND = "a_k = b_k and b_t between a_t and a_t + interval 1 hour"


def stream(session: SparkSession, watermark: bool = True) -> DataFrame:
    read = session.readStream.format("rate").load()
    named = read.selectExpr("timestamp as t", "value % 10 as k", "value as v")
    return named.withWatermark("t", "10 minutes") if watermark else named


def side(session: SparkSession, prefix: str, watermark: bool = True) -> DataFrame:
    read = stream(session, watermark)
    return read.select(*[F.col(name).alias(f"{prefix}_{name}") for name in read.columns])


def joined(kind: str, on: str = BOUND, watermark: bool = True) -> Make:
    return lambda s: side(s, "a", watermark).join(side(s, "b", watermark), F.expr(on), kind)


def window(session: SparkSession) -> DataFrame:
    return stream(session).groupBy(F.window("t", "10 minutes").alias("w"), "k").count()


def with_state(session: SparkSession) -> DataFrame:
    from pyspark.sql.streaming import StatefulProcessor

    class Nothing(StatefulProcessor):
        def init(self, handle: Any) -> None:
            return

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            return iter(())

        def close(self) -> None:
            return

    grouped = stream(session).groupBy("k")
    return grouped.transformWithState(Nothing(), "k bigint", "Update", "None")


OPERATIONS: dict[str, list[Make]] = {
    "select, filter, union": [
        lambda s: stream(s).where("k > 1").select("k"),
        lambda s: stream(s).union(stream(s)),
    ],
    "aggregation": [lambda s: stream(s, watermark=False).groupBy("k").count()],
    "tumbling or sliding window with a watermark": [
        window,
        lambda s: stream(s).groupBy(F.window("t", "10 minutes", "5 minutes").alias("w")).count(),
    ],
    "session window with a watermark": [
        lambda s: stream(s).groupBy("k", F.session_window("t", "5 minutes").alias("w")).count()
    ],
    "dropDuplicates": [lambda s: stream(s).dropDuplicates(["k"])],
    "dropDuplicatesWithinWatermark": [lambda s: stream(s).dropDuplicatesWithinWatermark(["k"])],
    "join with a static table": [
        lambda s, kind=kind: stream(s).join(s.range(9).withColumnRenamed("id", "k"), "k", kind)
        for kind in ("inner", "left", "left_semi")
    ],
    "inner join of two streams": [joined("inner"), joined("inner", "a_k = b_k", False)],
    "left or full outer join of two streams with watermarks and a bound": [
        joined("left"),
        joined("full"),
    ],
    "semi join of two streams with watermarks and a bound": [joined("left_semi")],
    "outer or semi join of two streams without watermarks": [
        joined("left", "a_k = b_k", False),
        joined("left_semi", "a_k = b_k", False),
    ],
    "a window of a window": [
        lambda s: window(s).groupBy(F.window("w", "1 hour").alias("hour")).count()
    ],
    "join of two streams, then a window": [
        lambda s: joined("inner")(s).groupBy(F.window("a_t", "1 hour").alias("w")).count()
    ],
    "sort after an aggregation": [
        lambda s: stream(s, watermark=False).groupBy("k").count().orderBy("count")
    ],
    "sort": [lambda s: stream(s).orderBy("k")],
    "limit": [lambda s: stream(s).limit(3)],
    "count of distinct values": [
        lambda s: stream(s, watermark=False).groupBy("k").agg(F.countDistinct("v").alias("n"))
    ],
    "transformWithState": [with_state],
}


def matrix() -> dict[str, tuple[str, ...]]:
    text = (REPOSITORY / "docs" / "spark.md").read_text()
    part = text.split("### Which operations go with which mode")[1].split("\n### ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", part, re.MULTILINE)
    return {name: said for name, *said in rows if name != "operation"}


def refusal(session: SparkSession, make: Make, mode: Any) -> str | None:
    key = ()
    if mode == "complete":
        key = make(session).columns[-1]
    pipeline = Pipeline("modes")
    pipeline.source("raw", Query(make, mode=mode, key=key))
    try:
        schema_of(session, pipeline.sources["raw"])
    except DeclarationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_matrix_says_what_spark_says(spark: SparkSession, operation: str) -> None:
    for make in OPERATIONS[operation]:
        for mode, said in zip(("append", "update", "complete"), matrix()[operation], strict=True):
            refused = refusal(spark, make, mode)
            assert (refused is None) == said.startswith("yes"), (mode, refused)
            if refused:
                assert "test_query_modes.py:" in refused
                assert re.search(r"Use mode=|Add |Put |Leave |Count |Change ", refused), refused
                assert "\n" not in refused


def test_every_operation_of_the_matrix_is_tried() -> None:
    assert matrix().keys() == OPERATIONS.keys()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda s: s.range(3), "is not streaming. Read its input by session.readStream"),
        (lambda s: 7, "returns int. Return a streaming DataFrame"),
        (lambda s: stream(s).selectExpr("cast(t as timestamp_ntz) as x"), "Cast it to timestamp"),
        (lambda s: stream(s).selectExpr("map(k, v) as x"), "Make its keys strings"),
        (lambda s: stream(s).selectExpr("nothing"), "UNRESOLVED_COLUMN"),
        (lambda s: stream(s).selectExpr("k as _k"), "reserved: rename it"),
    ],
)
def test_what_cannot_be_a_source_is_refused(spark: SparkSession, make: Make, words: str) -> None:
    pipeline = Pipeline("refused")
    pipeline.source("raw", Query(make))
    with pytest.raises(DeclarationError, match=re.escape(words)):
        with_query_schemas(spark, resolve(pipeline))
