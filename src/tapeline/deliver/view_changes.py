"""What a batch changed in a view: its rows before and after, compared by a summary's key.

A view has no journal. It is computed at two batches and the rows that differ are sent, so a row
whose running total moved is sent like the row that moved it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from tapeline.books import Books
from tapeline.books.arrow_rows import as_rows
from tapeline.books.commit import Commit, Counts
from tapeline.books.generations import CODE
from tapeline.books.reader import ReadPoint, told
from tapeline.books.sql import whole_numbers
from tapeline.declare import View
from tapeline.errors import OperationError
from tapeline.plan.views import key_of_view, stored_inputs
from tapeline.show import plain
from tapeline.store.duckdb import Connection, QueryError, connect, quoted, register_table
from tapeline.words import counted

Row = dict[str, Any]
ROWS_PER_VIEW = 1_000_000  # computed twice for every batch that moves one of its inputs


class ViewChanges:
    """The changes of one view, batch by batch."""

    def __init__(self, books: Books, view: View) -> None:
        self._books = books
        self._view = view
        self._inputs = sorted(stored_inputs(books.plan.pipeline, view))

    def of_batch(self, batch: int) -> tuple[pa.Schema, Iterator[Row]]:
        """What a batch changed; a batch that touches none of the inputs costs nothing."""
        if not self._moved(self._books.at(batch - 1).commit, self._books.at(batch).commit):
            return pa.schema([]), iter(())
        return self.between(batch - 1, batch)

    def between(self, then: int, now: int) -> tuple[pa.Schema, Iterator[Row]]:
        """The rows that differ between two batches, in the order of the key."""
        with connect() as connection, told(self._view.name):
            columns = self._compute(connection, "after_", self._books.at(now))
            self._before(connection, self._books.at(then), columns)
            key = key_of_view(self._books.plan.pipeline, self._view, columns)
            self._refuse_repeats(connection, key, now)
            order = ", ".join(map(quoted, key))
            differing = whole_numbers(
                connection.sql(
                    "select *, false as _new from (from before_ except from after_) union all "
                    "select *, true as _new from (from after_ except from before_) "
                    f"order by {order}, _new"
                ).to_arrow_table()
            )
            cause = self._causes(connection, now)
        shown = [field for field in differing.schema if field.name not in (*key, "_new")]
        return _shape(differing.schema, key, shown), _paired(differing, key, now, cause)

    def _before(self, connection: Connection, point: ReadPoint, columns: list[str]) -> None:
        """The view at the earlier batch; no rows if it did not suit the tables of that time."""
        try:
            if self._compute(connection, "before_", point) == columns:
                return
        except QueryError:
            if point.commit.generation == self._books.cut().commit.generation:
                raise  # its inputs are of the same code: the view itself fails
        connection.execute("create or replace temp table before_ as from after_ limit 0")

    def _moved(self, before: Commit, after: Commit) -> bool:
        """Whether a batch moved something that the view reads: rows, facts or a clock."""
        plan = self._books.plan
        read = [plan.pipeline.summaries[n] for n in self._inputs if n in plan.pipeline.summaries]
        clocks = {plan.entry_of(summary.stream).name for summary in read}
        return (
            any(after.tables.get(name, Counts()).rows for name in self._inputs)
            or any(after.stood(name) != before.stood(name) for name in self._inputs)
            or any(after.references.get(n) != before.references.get(n) for n in self._inputs)
            or any(after.clocks.get(name) != before.clocks.get(name) for name in clocks)
        )

    def _compute(self, connection: Connection, name: str, point: ReadPoint) -> list[str]:
        """Store the view at a batch as a temporary table, and return its columns."""
        self._books.open(connection, self._view.name, point)
        described = connection.execute(f"describe {quoted(self._view.name)}").fetchall()
        columns = [column[0] for column in described if not column[0].startswith("_")]
        connection.execute(
            f"create or replace temp table {name} as select {', '.join(map(quoted, columns))} "
            f"from {quoted(self._view.name)} limit {ROWS_PER_VIEW + 1}"
        )
        ((count,),) = connection.execute(f"select count(*) from {name}").fetchall()
        if count > ROWS_PER_VIEW:
            raise OperationError(
                f"{self._view.where}: view '{self._view.name}' has more than "
                f"{counted(ROWS_PER_VIEW, 'row')}. A sink or alert compares the whole view at each "
                "batch: narrow the view, or read its summary."
            )
        return columns

    def _refuse_repeats(self, connection: Connection, key: tuple[str, ...], batch: int) -> None:
        columns = ", ".join(map(quoted, key))
        twice = connection.execute(
            f"select {columns}, count(*) from after_ group by {columns} having count(*) > 1 "
            f"order by {columns} limit 1"
        ).fetchone()
        if twice is not None:
            raise OperationError(
                f"{self._view.where}: view '{self._view.name}' has {counted(twice[-1], 'row')} for "
                f"{', '.join(key)} = {_as_text(twice[:-1])} at batch {batch}. A sink or alert "
                "compares its rows by that key: group the view by these columns."
            )

    def _causes(self, connection: Connection, batch: int) -> str | None:
        """All causes in the batch: one entry may change many rows of a view."""
        layout, plan, point = self._books.layout, self._books.plan.pipeline, self._books.at(batch)
        found: set[str] = {CODE} if point.commit.applied else set()
        for name in self._inputs:
            if name in plan.references:
                continue
            stored = point.journal(name) if name in plan.summaries else point.register(name)
            folder = layout.table(stored)
            if register_table(connection, "entries_", folder, (batch, batch)):
                query = f"select distinct _cause from entries_ where _batch = {batch}"
                found |= {cause for (cause,) in connection.execute(query).fetchall() if cause}
        return ", ".join(sorted(found)) or None


def _paired(
    differing: pa.Table, key: tuple[str, ...], batch: int, cause: str | None
) -> Iterator[Row]:
    """One row per key that has a row before, after, or both."""
    rows = as_rows(differing)
    for values, sides in groupby(rows, key=lambda row: tuple(row[name] for name in key)):
        found = {row.pop("_new"): row for row in sides}
        old, new = (
            {name: value for name, value in row.items() if name not in key} if row else None
            for row in (found.get(False), found.get(True))
        )
        yield {
            **dict(zip(key, values, strict=True)),
            "_old": old,
            "_new": new,
            "_cause": cause,
            "_batch": batch,
            "_key": _as_text(values),
        }


def _as_text(values: tuple[Any, ...]) -> str:
    return "/".join(str(plain(value)) for value in values)


def _shape(schema: pa.Schema, key: tuple[str, ...], shown: list[pa.Field]) -> pa.Schema:
    number = pa.struct(shown)
    added = [("_old", number), ("_new", number), ("_cause", pa.string()), ("_batch", pa.int64())]
    own = [schema.field(name) for name in key]
    return pa.schema([*own, *(pa.field(name, kind) for name, kind in added)])
