"""Questions to the books as a request asks them: names are looked up, values bound, all limited."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

from tapeline.books import Books
from tapeline.books.query import connect, quoted
from tapeline.books.reader import Answer
from tapeline.errors import OperationError, did_you_mean

CONDITION = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(>=|<=|=|>|<)(.*)", re.DOTALL)
MOST_ROWS = 10_000
MOST_CONDITIONS = 20


@dataclass(frozen=True)
class Question:
    """What somebody wants to read of a summary, view, table or reference."""

    name: str
    where: Sequence[str] = ()  # such as terminal=WEB or window_start>=2026-11-13T14:30:00Z
    group: Sequence[str] = ()
    add_up: Sequence[str] = ()
    highest: Sequence[str] = ()
    as_reported: datetime | None = None
    since_batch: int = 0
    limit: int = 1_000
    offset: int = 0


def ask(books: Books, question: Question) -> Answer:
    """Read what a question asks for."""
    cut = books.cut(question.as_reported)
    with connect() as connection:
        if not books.open(connection, question.name, cut, question.since_batch):
            return Answer(cut.batch, cut.at, pa.table({}))
        types = _types(connection, question.name)
        conditions, values = _conditions(question.where, types)
        selected, grouped = _columns(question, types)
        where = f" where {' and '.join(conditions)}" if conditions else ""
        query = (
            f"select {selected} from {quoted(question.name)}{where}{grouped} "
            f"limit {question.limit + 1} offset {question.offset}"
        )
        found: pa.Table = connection.execute(query, values).to_arrow_table()
    rows = found.slice(0, question.limit)
    return Answer(cut.batch, cut.at, rows, found.num_rows > question.limit)


def values_of(books: Books, name: str, column: str, limit: int) -> list[Any]:
    """The different values of a column, in order: what a filter can offer."""
    with connect() as connection:
        if not books.open(connection, name, books.cut()):
            return []
        known = _known(column, _types(connection, name))
        rows = connection.execute(
            f"select distinct {known} as v from {quoted(name)} where v is not null "
            f"order by v limit {limit}"
        ).fetchall()
    return [row[0] for row in rows]


def _types(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, str]:
    rows = connection.execute(f"select column_name, column_type from (describe {quoted(name)})")
    return dict(rows.fetchall())


def _known(column: str, types: Mapping[str, str]) -> str:
    if column not in types:
        raise OperationError(f"'{column}' is no column.{did_you_mean(column, types)}")
    return quoted(column)


def _conditions(texts: Sequence[str], types: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Conditions with their values apart, in the columns' own types."""
    if len(texts) > MOST_CONDITIONS:
        raise OperationError(f"at most {MOST_CONDITIONS} conditions, not {len(texts)}.")
    conditions, values = [], []
    for text in texts:
        match = CONDITION.fullmatch(text)
        if not match:
            raise OperationError(f"'{text}' is no condition such as terminal=WEB.")
        column, comparison, value = match.groups()
        name = _known(column, types)
        kind = types[column]
        if kind.startswith(("STRUCT", "MAP", "BLOB")) or kind.endswith("[]"):
            raise OperationError(f"'{column}' cannot be compared: it is no single value.")
        # A value that is none of the column's type equals nothing.
        conditions.append(f"{name} {comparison} try_cast(? as {kind})")
        values.append(value)
    return conditions, values


def _columns(question: Question, types: Mapping[str, str]) -> tuple[str, str]:
    """What is selected, and how it is grouped and ordered."""
    if not question.group:
        if question.add_up or question.highest:
            raise OperationError("'sum' and 'max' need 'group': say by which columns.")
        return "*", ""
    group = [_known(column, types) for column in question.group]
    sums = []
    for column in question.add_up:
        kind = types.get(column, "")
        name = _known(column, types)
        if not kind.startswith(("DECIMAL", "BIGINT", "INTEGER", "HUGEINT")):
            raise OperationError(f"'{column}' cannot be added up: it is no number.")
        # DuckDB adds integers up to more digits than JSON readers take for a number.
        whole = "" if kind.startswith("DECIMAL") else "::bigint"
        sums.append(f"sum({name}){whole} as {name}")
    most = [f"max({_known(c, types)}) as {_known(c, types)}" for c in question.highest]
    if "_status" in types and "_status" not in question.group:
        sums.append("string_agg(distinct _status, ' ' order by _status) as _status")
    listed = ", ".join(group)
    return ", ".join([*group, *sums, *most]), f" group by {listed} order by {listed}"
