"""The steps of a pipeline, analysed by Spark on empty inputs and prepared to run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tapeline.books.position import ROW_POSITION
from tapeline.books.schemas import POSITION
from tapeline.declare import Step, Summary, Table
from tapeline.declare.select import PREFIX, Select
from tapeline.errors import DeclarationError
from tapeline.flow.steps import LEFT_OUT, Compile, Steps, SummaryStep, TableStep
from tapeline.formats.decoding import translator
from tapeline.plan import Plan
from tapeline.plan.fingerprint import of_summary, of_table
from tapeline.plan.graph import makes_key
from tapeline.settings import Settings
from tapeline.spark.decode import decode, leaf_of
from tapeline.spark.expectations import mark_broken
from tapeline.spark.internals import refuse_other_version, without_with
from tapeline.spark.plan_rules import PlanShape, inspect_plan
from tapeline.spark.prepared import Prepared
from tapeline.spark.queries import with_query_schemas
from tapeline.spark.shares import split_aggregation
from tapeline.spark.step_keys import identified, unidentified

JUDGED = ("_quarantine", "_drop", "_fail", "_warn")


def compiler(session: SparkSession, plan: Plan, settings: Settings) -> Compile:
    """What makes the steps of a plan ready to run on this session."""
    known = with_query_schemas(session, plan)
    return lambda references: prepare(session, known, references, settings)


def prepare(
    session: SparkSession,
    plan: Plan,
    references: Mapping[str, pa.Table],
    settings: Settings | None = None,
) -> Steps:
    """Analyse and plan every step on empty inputs; what is wrong is refused here.

    To run them over records of every format it takes the settings, too.
    """
    public = settings is not None and not settings.flow.prepared
    if not public:
        refuse_other_version()
    plan = with_query_schemas(session, plan)
    steps = analysed(session, plan, references, public)
    if settings is None:
        return steps
    return replace(steps, tables=tuple(_translated(s, plan, settings) for s in steps.tables))


def analysed(
    session: SparkSession, plan: Plan, references: Mapping[str, pa.Table], public: bool = False
) -> Steps:
    """What Spark makes of every step; it depends on the plan and the references alone.

    `public`: batches run by Spark's public API alone.
    """
    make = partial(Prepared, session, public=public)
    snapshots = {
        name: F.broadcast(session.createDataFrame(rows)) for name, rows in references.items()
    }
    tables: dict[str, TableStep] = {}
    for table in plan.tables:
        tables[table.name] = _prepare_table(make, plan, table, snapshots, tables)
    summaries = [
        _prepare_summary(make, plan, summary, snapshots, tables[summary.stream])
        for summary in _on_tables(plan)
    ]
    return Steps(tuple(tables.values()), tuple(summaries))


def _translated(step: TableStep, plan: Plan, settings: Settings) -> TableStep:
    source = plan.pipeline.sources.get(step.table.stream)
    if source is None:
        return step
    return replace(step, translate=translator(source.connector.decoder(settings, plan.name)))


def _on_tables(plan: Plan) -> tuple[Summary, ...]:
    for summary in plan.summaries:
        if summary.stream not in plan.pipeline.tables:
            raise DeclarationError(
                f"{summary.where}: {summary.name}() reads the source '{summary.stream}'. A summary "
                "reads a table: declare a table that reads this source."
            )
    return plan.summaries


def _prepare_table(
    make: Callable[..., Prepared],
    plan: Plan,
    table: Table,
    snapshots: Mapping[str, DataFrame],
    done: Mapping[str, TableStep],
) -> TableStep:
    source = plan.pipeline.sources.get(table.stream)
    schema = leaf_of(source.connector.records) if source else done[table.stream].leaf_schema
    made = makes_key(plan.pipeline, table)
    entering = unidentified(table) if made else table
    shape: list[PlanShape] = []

    def build(leaf: DataFrame) -> DataFrame:
        stream = decode(leaf, source.connector.records, entering) if source else leaf
        result = _call(table, stream, snapshots)
        if "_position" not in result.columns:
            raise DeclarationError(
                f"{table.where}: {table.name}() loses '_position'. Keep it: use withColumns or "
                'select("*", ...), not a select that leaves it out.'
            )
        shape.append(inspect_plan(result, table, snapshots, stream))
        if made and source:
            result = identified(result, table, source.connector.records, shape[-1].explodes)
        return mark_broken(result, table, arrives=source is not None)

    name = f"{plan.name}: {table.name}"
    prepared = _located(table, lambda: make(schema, build, name))
    own = [f for f in prepared.arrow_schema if f.name not in ("_position", *JUDGED)]
    for field in own:
        if field.name.startswith("_"):
            raise DeclarationError(
                f"{table.where}: {table.name}() makes the column '{field.name}'. Names that start "
                "with '_' are reserved: rename it."
            )
    faults = None
    if source:
        faults = make(
            schema,
            lambda leaf: decode(leaf, source.connector.records, entering).select("_position"),
            f"{name} (decoding)",
        )
    reads = source.connector.records.meaning if source else done[table.stream].columns
    splits = made and shape[0].explodes
    by_row = splits or (source is None and done[table.stream].position == ROW_POSITION)
    return TableStep(
        table,
        prepared,
        faults,
        pa.schema(own),
        shape[0].explodes,
        of_table(table, reads, shape[0].text),
        splits=splits,
        position=ROW_POSITION if by_row else POSITION,
        cuts=shape[0].cuts,
        left_out=_left_out(shape[0]),
    )


def _left_out(shape: PlanShape) -> str:
    """Why a record that could be read may be missing in what a step makes."""
    if not shape.matches:
        return LEFT_OUT
    lacking = f"no match in {' or '.join(shape.matches)}"
    return f"{LEFT_OUT}, or {lacking}" if shape.filters else lacking


def _prepare_summary(
    make: Callable[..., Prepared],
    plan: Plan,
    summary: Summary,
    snapshots: Mapping[str, DataFrame],
    above: TableStep,
) -> SummaryStep:
    name = f"{plan.name}: {summary.name}"
    found: dict[str, Any] = {}

    def build(leaf: DataFrame) -> DataFrame:
        result = _call(summary, leaf, snapshots)
        shape = inspect_plan(result, summary, snapshots, leaf)
        rows, measures = split_aggregation(result, summary)
        found.update(shape=shape, measures=measures)
        return rows

    def planned(schema: pa.Schema) -> Prepared:
        return _located(summary, lambda: make(schema, build, name))

    whole = planned(above.leaf_schema)
    # Planned again on the columns it really reads: the others need not travel to Spark.
    reads = {*found["shape"].reads, "_position"}
    needs = tuple(f.name for f in above.leaf_schema if f.name in reads)
    prepared = planned(pa.schema([above.leaf_schema.field(name) for name in needs]))
    if prepared.arrow_schema != whole.arrow_schema:
        needs, prepared = tuple(above.leaf_schema.names), whole
    own = [f for f in prepared.arrow_schema if f.name != "_position"]
    fingerprint = of_summary(summary, above.columns, found["shape"].text)
    return SummaryStep(
        summary,
        prepared,
        pa.schema(own),
        tuple(found["measures"]),
        needs,
        fingerprint,
        above.position,
        found["shape"].cuts,
    )


def _call(step: Step, stream: DataFrame, snapshots: Mapping[str, DataFrame]) -> DataFrame:
    given = {i.name: stream if i.kind == "stream" else snapshots[i.name] for i in step.inputs}
    result = step.function(**given)
    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"{step.where}: {step.name}() returns {type(result).__name__}. Return a DataFrame."
        )
    return without_with(result)


def _located(step: Step, make: Callable[[], Prepared]) -> Prepared:
    """Spark's complaints, with file and line of the declaration."""
    try:
        return make()
    except DeclarationError:
        raise
    except (AnalysisException, ParseException) as error:
        raise DeclarationError(f"{step.where}: {step.name}(): {_sentence(step, error)}") from None
    except Exception as error:  # a user's function may fail in any way
        raise DeclarationError(
            f"{step.where}: {step.name}(): {type(error).__name__}: {error}"
        ) from error


def _sentence(step: Step, error: PySparkException) -> str:
    """What Spark says, without its plan. Of a SELECT also without the text that Spark was given."""
    text = str(error).split("\nJVM stacktrace")[0].split(";\n'")[0].strip()
    if not isinstance(step.function, Select):
        return text
    text = text.split("\n\n== SQL")[0].replace(", `_position`", "").replace("`_position`, ", "")
    text = re.sub(r"[;,]? \(?line (\d+),? pos \d+\)?", r" (line \1 of the SQL)", text)
    return " ".join(text.replace(PREFIX, "").split())
