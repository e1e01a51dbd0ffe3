"""The steps of a pipeline, analysed by Spark on empty inputs and prepared to run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tapeline.books.schemas import JOURNAL, LINKS, REGISTER, with_columns
from tapeline.declare import Step, Summary, Table
from tapeline.errors import DeclarationError
from tapeline.plan import Plan
from tapeline.run.allowed import Shape, inspect_plan
from tapeline.run.decode import decode, leaf_of
from tapeline.run.formats import Translate, translator
from tapeline.run.prepared import Prepared
from tapeline.run.quality import judge
from tapeline.run.summarise import take_apart
from tapeline.settings import Settings

# What a step's `_position` holds behind the first table: where the record is, the row's place in
# the batch, and what the journal needs to know of it.
CARRIED = pa.struct(
    [
        ("source", pa.string()),
        ("part", pa.int64()),
        ("at", pa.int64()),
        ("ordinal", pa.int64()),
        ("cause", pa.string()),
        ("sign", pa.int32()),
    ]
)
JUDGED = ("_quarantine", "_drop", "_fail", "_warn")


@dataclass(frozen=True)
class TableStep:
    """A table, ready to run."""

    table: Table
    prepared: Prepared
    faults: Prepared | None  # decodes alone, to explain records that the step left out
    columns: pa.Schema
    explodes: bool
    fingerprint: str
    translate: Translate | None = None  # what the tape holds into what decoding reads

    def make(self, rows: pa.Table) -> pa.Table:
        """What the step makes of a leaf's rows."""
        return self.prepared.run(self.translate(rows) if self.translate else rows)

    def explain(self, rows: pa.Table) -> pa.Table:
        """What decoding alone makes of tape rows."""
        assert self.faults is not None
        return self.faults.run(self.translate(rows) if self.translate else rows)

    @property
    def register_schema(self) -> pa.Schema:
        return with_columns(self.columns, REGISTER)

    @property
    def leaf_schema(self) -> pa.Schema:
        """What a step behind this table reads."""
        return with_columns(self.columns, [("_position", CARRIED)])


@dataclass(frozen=True)
class SummaryStep:
    """A summary, ready to run: its rows before they are added up."""

    summary: Summary
    prepared: Prepared
    columns: pa.Schema
    measures: tuple[str, ...]
    needs: tuple[str, ...]
    fingerprint: str

    @property
    def links_schema(self) -> pa.Schema:
        return with_columns(self.columns, LINKS)


@dataclass(frozen=True)
class Steps:
    """All steps of a plan."""

    tables: tuple[TableStep, ...]
    summaries: tuple[SummaryStep, ...]

    @property
    def fingerprints(self) -> dict[str, str]:
        named = [(s.table.name, s.fingerprint) for s in self.tables]
        return dict(named + [(s.summary.name, s.fingerprint) for s in self.summaries])

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The tables that the steps fill, by their folders."""
        found = {f"silver/{step.table.name}": step.register_schema for step in self.tables}
        for step in self.summaries:
            name = f"gold/{step.summary.name}"
            found[name] = with_columns(step.columns, JOURNAL)
            found[f"{name}_links"] = step.links_schema
        return found


def prepare(
    session: SparkSession,
    plan: Plan,
    references: Mapping[str, pa.Table],
    settings: Settings | None = None,
) -> Steps:
    """Analyse and plan every step on empty inputs; what is wrong is refused here.

    To run them over records of every format it takes the settings, too.
    """
    snapshots = {
        name: F.broadcast(session.createDataFrame(rows)) for name, rows in references.items()
    }
    tables: dict[str, TableStep] = {}
    for table in plan.tables:
        step = _prepare_table(session, plan, table, snapshots, tables)
        source = plan.pipeline.sources.get(table.stream)
        if source and settings:
            step = replace(step, translate=translator(source.connector, settings, plan.name))
        tables[table.name] = step
    summaries = [
        _prepare_summary(session, summary, snapshots, tables[summary.stream])
        for summary in _on_tables(plan)
    ]
    return Steps(tuple(tables.values()), tuple(summaries))


def _on_tables(plan: Plan) -> tuple[Summary, ...]:
    for summary in plan.summaries:
        if summary.stream not in plan.pipeline.tables:
            raise DeclarationError(
                f"{summary.where}: {summary.name}() reads the source '{summary.stream}'. A summary "
                "reads a table's Stream: put a table between them."
            )
    return plan.summaries


def _prepare_table(
    session: SparkSession,
    plan: Plan,
    table: Table,
    snapshots: Mapping[str, DataFrame],
    done: Mapping[str, TableStep],
) -> TableStep:
    source = plan.pipeline.sources.get(table.stream)
    schema = leaf_of(source.connector) if source else done[table.stream].leaf_schema
    shape: list[Shape] = []

    def build(leaf: DataFrame) -> DataFrame:
        stream = decode(leaf, source.connector, table) if source else leaf
        result = _call(table, stream, snapshots)
        if "_position" not in result.columns:
            raise DeclarationError(
                f"{table.where}: {table.name}() loses '_position'. Keep it: use withColumns or "
                'select("*", ...), not a select that leaves it out.'
            )
        shape.append(inspect_plan(result, table, snapshots, stream))
        return judge(result, table, arrives=source is not None)

    prepared = _located(table, lambda: Prepared(session, schema, build))
    own = [f for f in prepared.arrow_schema if f.name not in ("_position", *JUDGED)]
    for field in own:
        if field.name.startswith("_"):
            raise DeclarationError(
                f"{table.where}: {table.name}() makes the column '{field.name}'; names that start "
                "with '_' are Tapeline's own."
            )
    faults = None
    if source:
        faults = Prepared(
            session, schema, lambda leaf: decode(leaf, source.connector, table).select("_position")
        )
    identity = (table.key, table.sequence_by, table.apply_as_deletes)
    clock = (table.time, table.late_after, table.future_after)
    rules = repr((identity, clock, table.expectations))
    return TableStep(
        table, prepared, faults, pa.schema(own), shape[0].explodes, _hash(shape[0].text + rules)
    )


def _prepare_summary(
    session: SparkSession, summary: Summary, snapshots: Mapping[str, DataFrame], above: TableStep
) -> SummaryStep:
    found: dict[str, Any] = {}

    def build(leaf: DataFrame) -> DataFrame:
        result = _call(summary, leaf, snapshots)
        shape = inspect_plan(result, summary, snapshots, leaf)
        rows, measures = take_apart(result, summary)
        found.update(shape=shape, measures=measures)
        return rows

    def plan(schema: pa.Schema) -> Prepared:
        return _located(summary, lambda: Prepared(session, schema, build))

    whole = plan(above.leaf_schema)
    # Planned again on the columns it really reads: the others need not travel to Spark.
    reads = {*found["shape"].reads, "_position"}
    needs = tuple(f.name for f in above.leaf_schema if f.name in reads)
    prepared = plan(pa.schema([above.leaf_schema.field(name) for name in needs]))
    if prepared.arrow_schema != whole.arrow_schema:
        needs, prepared = tuple(above.leaf_schema.names), whole
    own = [f for f in prepared.arrow_schema if f.name != "_position"]
    text = found["shape"].text + repr((summary.key, summary.time, summary.width))
    return SummaryStep(
        summary, prepared, pa.schema(own), tuple(found["measures"]), needs, _hash(text)
    )


def _call(step: Step, stream: DataFrame, snapshots: Mapping[str, DataFrame]) -> DataFrame:
    given = {i.name: stream if i.kind == "stream" else snapshots[i.name] for i in step.inputs}
    result = step.function(**given)
    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"{step.where}: {step.name}() returns {type(result).__name__}. Return a DataFrame."
        )
    return result


def _located(step: Step, make: Callable[[], Prepared]) -> Prepared:
    """Spark's complaints, with file and line of the declaration."""
    try:
        return make()
    except DeclarationError:
        raise
    except (AnalysisException, ParseException) as error:
        text = str(error).split("\nJVM stacktrace")[0].split(";\n'")[0].strip()
        raise DeclarationError(f"{step.where}: {step.name}(): {text}") from None
    except Exception as error:  # a user's function may fail in any way
        raise DeclarationError(
            f"{step.where}: {step.name}(): {type(error).__name__}: {error}"
        ) from error


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
