"""The steps of a pipeline, ready to run: what a table and a summary make of the rows given to them.

How they run is the business of a `Compute`: Spark's prepared plans, or a stand-in of tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from tapeline.books.columns import summary_shape
from tapeline.books.meanings import Code
from tapeline.books.position import placed
from tapeline.books.reasons import FAILS
from tapeline.books.schemas import JOURNAL, LINKS, POSITION, REGISTER, UNREAD, with_columns
from tapeline.books.table_id import TableId
from tapeline.declare import Step, Summary, Table
from tapeline.errors import DeclarationError
from tapeline.formats.decoding import Translate

# What `_position` has after the first table, besides where the record is: the row's
# place in the batch, and what the journal needs to know of it.
CARRIED = [("ordinal", pa.int64()), ("cause", pa.string()), ("sign", pa.int32())]
LEFT_OUT = "left out by the step"


class StepFailedError(Exception):
    """A computation fails because of a record, and fails again whenever it is computed."""

    def __init__(self, condition: str, words: str) -> None:
        super().__init__(f"{condition}: {words}")
        self.condition = condition  # in a word that is the same for every record it happens to
        self.words = words


@dataclass(frozen=True)
class Failure:
    """Why a step fails on a record: the reason that is counted, and Spark's words beside it."""

    reason: str
    words: str
    decoded: bool = True  # decoding alone does not fail on it

    @classmethod
    def of(cls, step: str, error: StepFailedError) -> Failure:
        return cls(f"{step}() {FAILS}: {error.condition}", error.words)


class Compute(Protocol):
    """A function from rows to rows, prepared to run again and again."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns that it makes."""

    def run(self, rows: pa.Table) -> pa.Table:
        """The function over these rows, in their order. Raises StepFailedError."""

    def warm(self) -> None:
        """Run once on a row of nulls, so that the first batch finds everything loaded."""


@dataclass(frozen=True)
class TableStep:
    """A table, ready to run."""

    table: Table
    prepared: Compute
    faults: Compute | None  # decodes alone, to explain records that the step left out
    columns: pa.Schema
    explodes: bool
    fingerprint: str
    translate: Translate | None = None  # what the tape holds into what decoding reads
    splits: bool = False  # each row that it makes of a message is a record of its own
    position: pa.StructType = POSITION
    cuts: tuple[str, ...] = ()  # where Spark would cut digits, a sentence each
    left_out: str = LEFT_OUT  # the reason of records that the step leaves out

    def make(self, rows: pa.Table) -> pa.Table:
        """What the step makes of a leaf's rows."""
        return self.prepared.run(self.translate(rows) if self.translate else rows)

    def explain(self, rows: pa.Table) -> pa.Table:
        """What decoding alone makes of tape rows."""
        assert self.faults is not None
        return self.faults.run(self.translate(rows) if self.translate else rows)

    @property
    def register_schema(self) -> pa.Schema:
        return with_columns(self.columns, placed(REGISTER, self.position))

    @property
    def leaf_schema(self) -> pa.Schema:
        """What a downstream step reads."""
        return with_columns(self.columns, [("_position", self.carried)])

    @property
    def carried(self) -> pa.StructType:
        """What `_position` has for downstream steps."""
        return pa.struct([*self.position, *[pa.field(name, kind) for name, kind in CARRIED]])


@dataclass(frozen=True)
class SummaryStep:
    """A summary, ready to run: its rows before they are added up."""

    summary: Summary
    prepared: Compute
    columns: pa.Schema
    measures: tuple[str, ...]
    needs: tuple[str, ...]
    fingerprint: str
    position: pa.StructType = POSITION
    cuts: tuple[str, ...] = ()

    @property
    def links_schema(self) -> pa.Schema:
        return with_columns(self.columns, placed(LINKS, self.position))


@dataclass(frozen=True)
class Steps:
    """All steps of a plan."""

    tables: tuple[TableStep, ...]
    summaries: tuple[SummaryStep, ...]
    generations: Mapping[str, int] = field(default_factory=dict)  # of those that are not the first
    above: tuple[TableStep, ...] = ()  # read by these and not computed with them

    def generation(self, name: str) -> int:
        """The generation of a table or summary that the steps write."""
        return self.generations.get(name, 1)

    def table(self, name: str) -> TableStep:
        """A table, whether it is computed here or only read."""
        return next(s for s in (*self.tables, *self.above) if s.table.name == name)

    def only(self, names: Collection[str]) -> Steps:
        """These steps alone; the other tables are read as they are stored."""
        return replace(
            self,
            tables=tuple(s for s in self.tables if s.table.name in names),
            summaries=tuple(s for s in self.summaries if s.summary.name in names),
            above=tuple(s for s in self.tables if s.table.name not in names),
        )

    @property
    def fingerprints(self) -> dict[str, str]:
        named = [(s.table.name, s.fingerprint) for s in self.tables]
        return dict(named + [(s.summary.name, s.fingerprint) for s in self.summaries])

    @property
    def code(self) -> Code:
        """What books are compared with before they are written."""
        tables = [step.table for step in self.tables]
        return Code(
            self.fingerprints,
            frozenset(table.name for table in tables if table.key),
            frozenset(table.name for table in tables if table.time),
        )

    @property
    def schemas(self) -> dict[TableId, pa.Schema]:
        """The tables that the steps fill."""
        found = {
            TableId.register(
                step.table.name, self.generation(step.table.name)
            ): step.register_schema
            for step in self.tables
        }
        for step in self.summaries:
            name, generation = step.summary.name, self.generation(step.summary.name)
            found[TableId.journal(name, generation)] = with_columns(step.columns, JOURNAL)
            found[TableId.links(name, generation)] = step.links_schema
        return found

    @property
    def shapes(self) -> dict[str, pa.Schema]:
        """The columns of tables and summaries as a reader sees them."""
        found = {}
        for step in self.tables:
            fields = [field for field in step.register_schema if field.name not in UNREAD]
            found[step.table.name] = pa.schema(fields)
        for one in self.summaries:
            stored = with_columns(one.columns, JOURNAL)
            found[one.summary.name] = summary_shape(one.summary, stored)
        return found

    @property
    def cuts(self) -> list[str]:
        """Where Spark would cut digits, with file and line of each step."""
        named: list[tuple[Step, tuple[str, ...]]] = [(s.table, s.cuts) for s in self.tables]
        named += [(step.summary, step.cuts) for step in self.summaries]
        return [f"{s.where}: {s.name}(): {words}" for s, cuts in named for words in cuts]

    def refuse_cuts(self) -> None:
        """Money is exact: a step that would be rounded without saying so is refused."""
        if self.cuts:
            raise DeclarationError("\n".join(self.cuts))


# Analyses the steps of a pipeline with these references, and makes them ready to run.
Compile = Callable[[Mapping[str, pa.Table]], Steps]
