"""A prepared plan gives what Spark gives the ordinary way, batch after batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline.errors import TapelineBug
from tapeline.spark.prepared import Prepared

LEAF = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("moment", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x", pa.int32()), ("y", pa.binary())])),
    ]
)
START = datetime(1970, 1, 1, tzinfo=UTC)
FACTS = pa.table({"name": ["n1", "n2"], "place": ["here", "there"]})


def rows(first: int, count: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "name": f"n{i % 4}" if i % 7 else None,
                "amount": Decimal(i) / 4,
                "moment": datetime(2026, 11, 13, 10, i % 60, tzinfo=UTC),
                "tags": ["a", "b"][: i % 3],
                "inner": {"x": i % 5, "y": bytes([i % 256])},
            }
            for i in range(first, first + count)
        ],
        schema=LEAF,
    )


@pytest.mark.parametrize("public", [False, True], ids=["prepared", "by public API"])
@pytest.mark.parametrize("count", [1, 200, 9_000])
def test_it_equals_the_ordinary_way(spark: Any, count: int, public: bool) -> None:
    facts = F.broadcast(spark.createDataFrame(FACTS))

    def step(frame: DataFrame) -> DataFrame:
        joined = frame.join(facts, "name", "left").filter("amount >= 0.5")
        tagged = joined.select("*", F.explode_outer("tags").alias("tag"))
        return tagged.withColumns(
            {"twice": F.col("amount") * 2, "hour": F.window("moment", "1 hour").start}
        )

    prepared = Prepared(spark, LEAF, step, public=public)
    for first in (0, 1_000):
        given = rows(first, count)
        ordinary = step(spark.createDataFrame(given)).toArrow().to_pylist()
        assert prepared.run(given).to_pylist() == ordinary
    assert prepared.run(rows(0, 0)).num_rows == 0


def test_a_plan_with_a_shuffle_is_refused(spark: Any) -> None:
    with pytest.raises(TapelineBug, match="needs a shuffle"):
        Prepared(spark, LEAF, lambda frame: frame.groupBy("name").count())


VALUES = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(max_size=3) | st.sampled_from(["n1", "n2"]),
        "amount": st.none()
        | st.decimals(Decimal("-9999999999.99"), Decimal("9999999999.99"), places=2),
        "moment": st.none()
        | st.integers(0, 2**52).map(lambda micros: START + timedelta(microseconds=micros)),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3),
        "inner": st.none()
        | st.fixed_dictionaries(
            {"x": st.none() | st.integers(-(2**31), 2**31 - 1), "y": st.none() | st.binary()}
        ),
    }
)


@pytest.fixture(scope="module")
def both_ways(spark: Any) -> tuple[Prepared, Prepared]:
    facts = F.broadcast(spark.createDataFrame(FACTS))

    def step(frame: DataFrame) -> DataFrame:
        tagged = frame.join(facts, "name", "left").select(
            "*", F.posexplode_outer("tags").alias("n", "tag")
        )
        return tagged.filter("amount is null or amount > -5000000000").withColumns(
            {
                "tenth": (F.col("amount") / 10).cast("decimal(14,4)"),
                "day": F.col("moment").cast("date"),
                "y": F.hex("inner.y"),
            }
        )

    return Prepared(spark, LEAF, step), Prepared(spark, LEAF, step, public=True)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUES, max_size=40))
def test_both_ways_give_the_same_rows_in_the_same_order(
    both_ways: tuple[Prepared, Prepared], given_rows: list[dict[str, Any]]
) -> None:
    prepared, public = both_ways
    table = pa.Table.from_pylist(given_rows, schema=LEAF)
    made = prepared.run(table)
    again = public.run(table)
    assert again.schema == made.schema
    assert again.to_pylist() == made.to_pylist()
