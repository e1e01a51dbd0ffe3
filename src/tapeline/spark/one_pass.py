"""The steps of a pipeline over all its records at once, by ordinary Spark and without books.

An oracle: no batches, no prepared plans, no journal. Each table is the user's function over all
records; rules are filters, and of the records of a key the newest stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tapeline.declare import Step, Table
from tapeline.declare.select import Select
from tapeline.declare.windows import PARTS, parts_of
from tapeline.formats.decoding import translator
from tapeline.plan import Plan
from tapeline.plan.graph import makes_key
from tapeline.settings import Settings
from tapeline.spark.decode import decode, leaf_of
from tapeline.spark.expectations import mark_broken
from tapeline.spark.step_keys import identified, unidentified

MARKS = ("_quarantine", "_drop", "_fail", "_warn")
RECORD = ("_position.source", "_position.part", "_position.at")


def one_pass(
    session: SparkSession,
    plan: Plan,
    settings: Settings,
    tapes: Mapping[str, pa.Table],
    references: Mapping[str, pa.Table],
) -> Iterator[tuple[str, pa.Table]]:
    """The rows of every table and the numbers of every summary, by name."""
    snapshots = {name: session.createDataFrame(rows) for name, rows in references.items()}
    done: dict[str, DataFrame] = {}
    for table in plan.tables:
        if table.stream in plan.pipeline.sources:
            leaf = _leaf(session, plan, settings, table, tapes[table.stream])
            rows = _entering(plan, table, leaf, snapshots)
        else:
            made = _called(table, done[table.stream], snapshots)
            rows = _accepted(mark_broken(made, table, arrives=False), F.lit(False))
        done[table.name] = rows.persist()
        yield table.name, done[table.name].drop("_position").toArrow()
    for summary in plan.summaries:
        stream = done[summary.stream]
        if isinstance(summary.function, Select):  # a pivot groups by all columns that it finds
            stream = stream.drop("_position")
        rows = _called(summary, stream, snapshots)
        yield summary.name, _opened(rows).toArrow()
    for rows in done.values():
        rows.unpersist()


def _leaf(
    session: SparkSession, plan: Plan, settings: Settings, table: Table, tape: pa.Table
) -> DataFrame:
    """Tape rows as decoding reads them."""
    connector = plan.pipeline.sources[table.stream].connector
    translate = translator(connector.decoder(settings, plan.name))
    rows = translate(tape) if translate else tape
    return session.createDataFrame(rows.select(leaf_of(connector.records).names))


def _entering(
    plan: Plan, table: Table, leaf: DataFrame, snapshots: Mapping[str, DataFrame]
) -> DataFrame:
    """A table that reads a source: rules first, then identity."""
    records = plan.pipeline.sources[table.stream].connector.records
    made = makes_key(plan.pipeline, table)
    stream = decode(leaf, records, unidentified(table) if made else table)
    rows = _called(table, stream, snapshots)
    if made:
        rows = identified(rows, table, records, explodes=False)
    deletes = F.col("_position.deletes")
    faulty = F.col("_position.faults") != ""
    if table.key and not table.key_optional:
        faulty = faulty | F.col("_position.key_hash").isNull()
    if table.sequence_by:
        faulty = faulty | F.col("_position.sequence").isNull()
    marked = mark_broken(rows, table, arrives=True).withColumn("_faulty", faulty)
    rows = _accepted(marked, deletes, F.col("_faulty")).drop("_faulty")
    return _newest(rows) if table.key else rows


def _accepted(rows: DataFrame, deletes: Column, faulty: Column | None = None) -> DataFrame:
    """Rows of records none of whose rows breaks a rule; a deletion needs a key and no more."""
    broken = ~deletes & ((F.col("_quarantine") != "") | (F.col("_drop") != ""))
    if faulty is not None:
        broken = broken | faulty
    whole = F.max(broken).over(Window.partitionBy(*RECORD))
    return rows.withColumn("_broken", whole).where("not _broken").drop("_broken", *MARKS)


def _newest(rows: DataFrame) -> DataFrame:
    """Of the records of a key the one that stands; nothing if that one deletes the key."""
    key = Window.partitionBy("_position.key_hash")
    order = key.orderBy(F.desc("_position.sequence"), *RECORD)
    ranked = rows.withColumn("_rank", F.dense_rank().over(order))
    alone = F.col("_position.key_hash").isNull()
    stands = (F.col("_rank") == 1) & ~F.col("_position.deletes")
    return ranked.where(alone | stands).drop("_rank")


def _called(step: Step, stream: DataFrame, snapshots: Mapping[str, DataFrame]) -> DataFrame:
    given = {i.name: stream if i.kind == "stream" else snapshots[i.name] for i in step.inputs}
    rows: DataFrame = step.function(**given)
    return rows


def _opened(rows: DataFrame) -> DataFrame:
    """The numbers of a summary, its windows as their starts and ends."""
    columns: list[Column] = []
    for field in rows.schema:
        kind = field.dataType
        if isinstance(kind, StructType) and tuple(kind.names) == PARTS:
            for part, one in zip(parts_of(field.name), PARTS, strict=True):
                columns.append(F.col(f"`{field.name}`").getField(one).alias(part))
        elif field.name != "_position":
            columns.append(F.col(f"`{field.name}`"))
    return rows.select(*columns)
