"""Rows for programs outside, as Arrow whose columns and types are known before the first row.

A number that outgrew its type is null, and `_overflow` says so: no other program holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tapeline.books.changes import Row, change_shape, changes_of, history_of
from tapeline.books.columns import measures, shape_of
from tapeline.books.exact import OVERFLOW, Kind, Number
from tapeline.books.generations import view_register
from tapeline.books.reader import Books, ReadPoint, told
from tapeline.books.schemas import UNREAD
from tapeline.errors import QuestionError
from tapeline.store.delta_files import stored_schema
from tapeline.store.duckdb import LAST_BATCH, connect


def extract_shape(books: Books, name: str, cut: ReadPoint, changes: bool = False) -> pa.Schema:
    """The columns of a table, summary, view or reference, or of the changes of the first two."""
    plan = books.plan.pipeline
    if changes and name in plan.summaries:
        stored = stored_schema(books.layout.table(cut.journal(name)))
        summary = plan.summaries[name]
        shape = change_shape(summary, measures(summary, stored), stored)
        return shape.append(pa.field(OVERFLOW, pa.bool_()))
    if changes and name not in plan.tables:
        raise QuestionError(
            f"'{name}' has no published changes: only tables and summaries have. Read it without "
            "the option 'changes', or choose one of "
            f"{', '.join(sorted({*plan.tables, *plan.summaries}))}."
        )
    if name in plan.declared and name not in plan.views and name not in plan.sources:
        return shape_of(plan, books.layout, name, cut.commit.generation_of(name))
    with connect() as connection:
        if not books.open(connection, name, cut):  # a name that is not there is refused
            raise QuestionError(f"view '{name}' reads what has no rows yet. Run the pipeline once.")
        return connection.sql(f'select * from "{name}" limit 0').to_arrow_table().schema


def extract(
    books: Books, name: str, cut: ReadPoint, batches: tuple[int, int] = (0, LAST_BATCH)
) -> pa.Table:
    """What can be read at a cut; of a table, only what came with these batches."""
    shape = extract_shape(books, name, cut)
    first, last = batches
    where = f"where _batch <= {last}" if name in books.plan.pipeline.tables else ""
    with connect() as connection:
        if not books.open(connection, name, cut, first):
            return shape.empty_table()
        with told(name):
            rows = connection.sql(f'select * from "{name}" {where}').to_arrow_table()
    return rows.select(shape.names).cast(shape)


def extract_changes(books: Books, name: str, first: int, last: int) -> pa.Table:
    """What these batches changed: rows that came or were taken back, numbers before and after."""
    shape = extract_shape(books, name, books.at(last), changes=True)
    history = history_of(books.layout, first, last)
    if name in books.plan.pipeline.summaries:
        _, changed = changes_of(history, books.plan.pipeline.summaries[name])
        return pa.Table.from_pylist(list(_fitting(changed, shape)), schema=shape)
    with connect() as connection:
        if not view_register(connection, "r", history, name):
            return shape.empty_table()
        rows = connection.sql(
            f"select * exclude ({', '.join(UNREAD)}) from r where _verdict = 'kept' "
            f"and _batch between {first} and {last} order by _batch"
        ).to_arrow_table()
    return rows.select(shape.names).cast(shape)


def _fitting(rows: Iterator[Row], shape: pa.Schema) -> Iterator[Row]:
    """Changes with null in the place of each number that does not fit its type."""
    kinds = {field.name: Kind.of(field.type) for field in shape.field("_new").type}
    for row in rows:
        old, new = (_held(row[name], kinds) for name in ("_old", "_new"))
        outgrown = old != row["_old"] or new != row["_new"]
        yield row | {"_old": old, "_new": new, OVERFLOW: outgrown}


def _held(number: Row | None, kinds: Mapping[str, Kind]) -> dict[str, Any] | None:
    if number is None:
        return None
    return {
        name: value if value is None or _holds(kinds[name], value) else None
        for name, value in number.items()
    }


def _holds(kind: Kind, value: Number) -> bool:
    """Whether a type has this number; integers have one more below zero than above."""
    return -kind.most - kind.whole <= kind.units(value) <= kind.most
