"""A prepared plan gives what Spark gives the ordinary way, batch after batch."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
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


@pytest.mark.parametrize("count", [1, 200, 9_000])
def test_it_equals_the_ordinary_way(spark: Any, count: int) -> None:
    facts = F.broadcast(spark.createDataFrame(FACTS))

    def step(frame: DataFrame) -> DataFrame:
        joined = frame.join(facts, "name", "left").filter("amount >= 0.5")
        tagged = joined.select("*", F.explode_outer("tags").alias("tag"))
        return tagged.withColumns(
            {"twice": F.col("amount") * 2, "hour": F.window("moment", "1 hour").start}
        )

    prepared = Prepared(spark, LEAF, step)
    for first in (0, 1_000):
        given = rows(first, count)
        ordinary = step(spark.createDataFrame(given)).toArrow().to_pylist()
        assert prepared.run(given).to_pylist() == ordinary
    assert prepared.run(rows(0, 0)).num_rows == 0


def test_a_plan_with_a_shuffle_is_refused(spark: Any) -> None:
    with pytest.raises(TapelineBug, match="needs a shuffle"):
        Prepared(spark, LEAF, lambda frame: frame.groupBy("name").count()).plan()
