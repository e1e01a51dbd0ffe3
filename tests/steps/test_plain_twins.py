"""Each twin of tests/support makes the same rows of the same records as its step in Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tapeline import Pipeline
from tapeline.books.schemas import TAPE_LEAF
from tapeline.flow.steps import Compute, Steps
from tapeline.plan import resolve
from tapeline.spark.compile import prepare
from tests.support import corrected_orders, law_orders
from tests.support.plain_compute import Twin, plain_compiler
from tests.support.xxhash64 import xxhash64

ARRIVED = datetime(2026, 11, 13, 12, tzinfo=UTC)
ODD = [
    b"not json", b'"a text"', b"\xff\xfe", b"{}", b'{"id": null}',
    {"id": "odd", "at": "never", "side": "BUY", "amount": "12"},
    {"id": "odd", "at": "2026-11-13 10:05", "side": "BUY", "amount": "1e3", "v": 1},
    {"id": "odd", "at": "2026-11-13T10:05:01.5+02:00", "side": None, "amount": "1.239", "v": "x"},
    {"id": "odd", "at": "2031-01-01T00:00:00Z", "side": "BUY", "amount": 99999999999, "v": 2**40},
    {"id": "odd", "at": "2026-11-13T10:05:00Z", "side": "TEST", "amount": " 10.5000 ", "v": " 3 "},
    {"id": "ä" * 40, "at": "2026-11-13T10:59:59.999999Z", "side": "S", "amount": "+010", "v": -1},
    {"id": "odd", "event": "CANCEL", "at": "never", "amount": "nothing", "v": 4},
]  # fmt: skip
LAWS = [law_orders.record(number) for number in range(60)]
ORDERS = [corrected_orders.record(key, version) for key in range(12) for version in range(1, 5)]


@pytest.fixture(
    scope="module",
    params=[
        (law_orders.pipeline(), law_orders.TWINS, [*LAWS, *ODD]),
        (corrected_orders.pipeline(), corrected_orders.TWINS, [*ORDERS, *ODD]),
    ],
    ids=["laws", "corrected orders"],
)
def both(spark: SparkSession, request: pytest.FixtureRequest) -> tuple[Steps, Steps, pa.Table]:
    pipeline: Pipeline = request.param[0]
    twins: dict[str, Twin] = request.param[1]
    lines = [
        one if isinstance(one, bytes) else json.dumps(one).encode() for one in request.param[2]
    ]
    rows = [
        {"part": 1, "at": at, "arrived_at": ARRIVED, "raw": line, "ordinal": at}
        for at, line in enumerate(lines)
    ]
    tape = pa.Table.from_pylist(rows, TAPE_LEAF)
    return prepare(spark, resolve(pipeline), {}), plain_compiler(pipeline, twins)({}), tape


def same(ours: Compute, theirs: Compute, rows: pa.Table) -> pa.Table:
    """What both make of the rows, after it was found to be the same."""
    schema = theirs.arrow_schema
    assert {f.name: f.type for f in ours.arrow_schema} == {f.name: f.type for f in schema}
    found = theirs.run(rows).to_pylist()
    assert ours.run(rows).select(schema.names).to_pylist() == found
    return theirs.run(rows)


def test_a_twin_makes_what_its_step_makes(both: tuple[Steps, Steps, pa.Table]) -> None:
    spark, plain, tape = both
    made: dict[str, pa.Table] = {}
    for theirs, ours in zip(spark.tables, plain.tables, strict=True):
        name = theirs.table.name
        assert (ours.columns, ours.explodes, ours.position) == (
            theirs.columns, theirs.explodes, theirs.position
        )  # fmt: skip
        if theirs.faults is not None and ours.faults is not None:
            same(ours.faults, theirs.faults, tape)
            made[name] = same(ours.prepared, theirs.prepared, tape)
        else:
            leaf = _carried(spark, theirs.table.stream, made[theirs.table.stream])
            made[name] = same(ours.prepared, theirs.prepared, leaf)
        assert made[name].num_rows
    for theirs_sum, ours_sum in zip(spark.summaries, plain.summaries, strict=True):
        assert (ours_sum.columns, ours_sum.measures) == (theirs_sum.columns, theirs_sum.measures)
        stream = theirs_sum.summary.stream
        leaf = _carried(spark, stream, made[stream])
        assert same(ours_sum.prepared, theirs_sum.prepared, leaf).num_rows
    assert plain.schemas == spark.schemas


def _carried(steps: Steps, table: str, rows: pa.Table) -> pa.Table:
    """Rows of a table as the steps downstream read them."""
    step = next(one for one in steps.tables if one.table.name == table)

    def one(number: int, row: dict[str, Any]) -> dict[str, Any]:
        position = {"source": "raw", "part": 1, "at": number, "ordinal": number}
        return {**row, "_position": {**position, "cause": "on_time", "sign": 1}}

    found = [one(number, row) for number, row in enumerate(rows.to_pylist())]
    return pa.Table.from_pylist(found, step.leaf_schema)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 12, 31, 32, 33, 64, 100])
def test_the_hash_is_spark_s(spark: SparkSession, size: int) -> None:
    text = "".join(chr(97 + number % 26) for number in range(size))
    (row,) = spark.sql(f"select xxhash64('{text}') as hash").collect()
    assert xxhash64(text.encode()) == row["hash"]
