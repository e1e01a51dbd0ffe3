"""SQL of one's own over the books, read-only: what is declared, under the names it has."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from tapeline.books.reader import Answer, Books, ReadPoint
from tapeline.errors import OperationError, QuestionError
from tapeline.sql.duckdb import WrongSqlError, names_read
from tapeline.store.duckdb import (
    MEMORY_LIMIT,
    Connection,
    Interrupted,
    OutOfMemory,
    QueryError,
    enclosed,
)

HUGEINT = pa.decimal128(38, 0)  # what Arrow makes of it


@dataclass(frozen=True)
class Limits:
    """How much one query may cost. Its memory is limited by the database: MEMORY_LIMIT."""

    rows: int = 10_000
    seconds: float = 60.0


def ask_sql(
    books: Books, query: str, as_reported: datetime | None = None, limits: Limits | None = None
) -> Answer:
    """The answer to one SELECT at the last published batch, or as it was published by a moment."""
    limits = limits or Limits()
    cut = books.cut(as_reported)
    with enclosed() as connection:
        for name in _names_read(query):
            _open(connection, books, name, cut)
        rows = _answer(connection, query, limits)
    more = rows.num_rows > limits.rows
    return Answer(cut.batch, cut.at, whole_numbers(rows.slice(0, limits.rows)), more)


def askable(books: Books) -> list[dict[str, Any]]:
    """What can be asked for, with the columns of each and their types."""
    plan = books.plan.pipeline
    cut = books.cut()
    found: list[dict[str, Any]] = []
    with enclosed() as connection:
        for kind, items in (
            ("summary", plan.summaries),
            ("view", plan.views),
            ("table", plan.tables),
            ("reference", plan.references),
        ):
            for name, item in items.items():
                _open(connection, books, name, cut)
                described = connection.execute(
                    f'select column_name, lower(column_type) from (describe "{name}")'
                )
                columns = dict(described.fetchall())
                about = getattr(item, "about", "")
                found.append({"kind": kind, "name": name, "columns": columns, "about": about})
    return found


def _names_read(query: str) -> tuple[str, ...]:
    try:
        return names_read(query)
    except WrongSqlError as error:
        if error.select:
            raise QuestionError(f"the query failed. {error}") from None
    raise QuestionError(
        'a query must be one SELECT, since the books are read-only. Write for example "select '
        "* from trade_summary where currency = 'USD'\"."
    )


def _open(connection: Connection, books: Books, name: str, cut: ReadPoint) -> None:
    """Make a name readable; what has no rows yet has its columns all the same."""
    if books.open(connection, name, cut):
        return
    connection.register(name, books.shape(name).empty_table())


def _answer(connection: Connection, query: str, limits: Limits) -> pa.Table:
    """The rows of a query, and one more than allowed where there are more."""
    timer = threading.Timer(limits.seconds, connection.interrupt)
    timer.start()
    try:
        return _first(connection.sql(query).to_arrow_reader(10_000), limits.rows + 1)
    except Interrupted:
        raise OperationError(
            f"the query took longer than {limits.seconds:g} seconds. Query less data, or raise "
            "--seconds."
        ) from None
    except OutOfMemory:
        raise OperationError(
            f"the query needs more than {MEMORY_LIMIT} of memory. Use fewer columns, a narrower "
            "WHERE, or a LIMIT with ORDER BY."
        ) from None
    except QueryError as error:
        raise QuestionError(_words(error)) from None
    finally:
        timer.cancel()


def _first(reader: pa.RecordBatchReader, count: int) -> pa.Table:
    """The first rows of an answer; the others are never computed where they need not be."""
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < count:
        try:
            batches.append(reader.read_next_batch())
        except StopIteration:
            break
    return pa.Table.from_batches(batches, reader.schema).slice(0, count)


def whole_numbers(rows: pa.Table) -> pa.Table:
    """Sums of counts as integers where they fit: DuckDB adds them up in 128 bits."""
    for place, field in enumerate(rows.schema):
        if field.type == HUGEINT:
            with suppress(pa.ArrowInvalid):
                column = rows.column(place).cast(pa.int64())
                rows = rows.set_column(place, field.name, column)
    return rows


def _words(error: QueryError) -> str:
    """DuckDB's own words; they name the nearest column."""
    return f"the query failed. {error}"
