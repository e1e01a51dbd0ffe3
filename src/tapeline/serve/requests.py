"""Queries from requests: names are checked, values are bound, and results are limited."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from tapeline.books import Books, exact
from tapeline.books.fold import exactly
from tapeline.books.measures import Measure, composed_in, shown_rows
from tapeline.books.reader import Answer, told
from tapeline.errors import OperationError, did_you_mean
from tapeline.store.duckdb import Connection, OutOfRange, connect, quoted

CONDITION = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(>=|<=|=|>|<)(.*)", re.DOTALL)
MOST_ROWS = 10_000
MOST_CONDITIONS = 20
NUMBERS = ("DECIMAL", "BIGINT", "INTEGER", "HUGEINT")


@dataclass(frozen=True)
class ReadRequest:
    """A query of a summary, view, table or reference."""

    name: str
    where: Sequence[str] = ()  # such as terminal=WEB or window_start>=2026-11-13T14:30:00Z
    group: Sequence[str] = ()
    add_up: Sequence[str] = ()
    highest: Sequence[str] = ()
    as_reported: datetime | None = None
    since_batch: int = 0
    limit: int = 1_000
    offset: int = 0


def ask(books: Books, question: ReadRequest) -> Answer:
    """Run a query. Numbers have all their digits."""
    cut = books.cut(question.as_reported)
    with connect() as connection:
        if not books.open(connection, question.name, cut, question.since_batch):
            return Answer(cut.batch, cut.at, pa.table({}))
        name = question.name
        if name in books.plan.pipeline.summaries:
            name = exactly(name)
        types = _types(connection, name)
        conditions, values = _conditions(question.where, types)
        where = f" where {' and '.join(conditions)}" if conditions else ""
        with told(question.name):
            found = _found(connection, question, (f"{quoted(name)}{where}", types), values)
    rows = found.slice(0, question.limit)
    if question.group or question.name in books.plan.pipeline.summaries:
        rows = shown_rows(exact.settled(rows))
    return Answer(cut.batch, cut.at, rows, found.num_rows > question.limit)


def _found(
    connection: Connection,
    question: ReadRequest,
    source: tuple[str, Mapping[str, str]],
    values: list[str],
) -> pa.Table:
    """The rows of a query: fast sums, and exact ones where a fast sum overflows."""
    rows, types = source
    some = f" limit {question.limit + 1} offset {question.offset}"

    def query(full: bool) -> str:
        selected, grouped = _columns(question, types, full)
        return f"select {selected} from {rows}{grouped}{some}"

    try:
        found: pa.Table = connection.sql(query(full=False), params=values).to_arrow_table()
        if not question.group or not any(found.column(exact.OVERFLOW).to_pylist()):
            return found
    except OutOfRange:
        pass
    return connection.sql(query(full=True), params=values).to_arrow_table()


def values_of(books: Books, name: str, column: str, limit: int) -> list[Any]:
    """The distinct values of a column, in order."""
    with connect() as connection:
        if not books.open(connection, name, books.cut()):
            return []
        known = _known(column, _types(connection, name))
        rows = connection.execute(
            f"select distinct {known} as v from {quoted(name)} where v is not null "
            f"order by v limit {limit}"
        ).fetchall()
    return [row[0] for row in rows]


def _types(connection: Connection, name: str) -> dict[str, str]:
    rows = connection.execute(f"select column_name, column_type from (describe {quoted(name)})")
    return dict(rows.fetchall())


def _known(column: str, types: Mapping[str, str]) -> str:
    if column not in types:
        raise OperationError(f"column '{column}' not found.{did_you_mean(column, types)}")
    return quoted(column)


def _conditions(texts: Sequence[str], types: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """SQL conditions with placeholders, and their values, in the types of the columns."""
    if len(texts) > MOST_CONDITIONS:
        raise OperationError(
            f"{len(texts)} conditions are too many; use at most {MOST_CONDITIONS}."
        )
    conditions, values = [], []
    for text in texts:
        match = CONDITION.fullmatch(text)
        if not match:
            raise OperationError(
                f"'{text}' is not a condition. Example: terminal=WEB. Operators: = < <= > >="
            )
        column, comparison, value = match.groups()
        name = _known(column, types)
        kind = types[column]
        if kind.startswith(("STRUCT", "MAP", "BLOB")) or kind.endswith("[]"):
            raise OperationError(f"column '{column}' cannot be compared: it has a nested type.")
        # A value that does not fit the type of the column matches no row.
        holds = f"{name} {comparison} try_cast(? as {kind})"
        values.append(value)
        if exact.BESIDE + column in types:
            # A number too large for its type is greater or less than every value of that type.
            beside = quoted(exact.BESIDE + column)
            side = f"case when {beside}[1] = '-' then -1 else 1 end"
            known = f"try_cast(? as {kind}) is not null and {side} {comparison} 0"
            holds = f"case when {beside} is null then {holds} else {known} end"
            values.append(value)
        conditions.append(holds)
    return conditions, values


def _columns(question: ReadRequest, types: Mapping[str, str], full: bool) -> tuple[str, str]:
    """The select list, and group and order; `full` for numbers of any size."""
    if not question.group:
        if question.add_up or question.highest:
            raise OperationError(
                "'sum' and 'max' need 'group'. Add group= with the columns to group by."
            )
        return "*", ""
    group = [_known(column, types) for column in question.group]
    found = [part for column in question.add_up for part in _sum(column, types, full)]
    found += [part for column in question.highest for part in _most(column, types, full)]
    if "_status" in types and "_status" not in question.group:
        found.append("string_agg(distinct _status, ' ' order by _status) as _status")
    outgrown = f"bool_or({exact.OVERFLOW})" if exact.OVERFLOW in types else "false"
    listed = ", ".join(group)
    flag = [] if exact.OVERFLOW in question.group else [f"{outgrown} as {exact.OVERFLOW}"]
    selected = ", ".join([*group, *found, *flag])
    return selected, f" group by {listed} order by {listed}"


def _sum(column: str, types: Mapping[str, str], full: bool) -> list[str]:
    """A sum in the widest type of its kind, and as text next to it if that overflows."""
    name, kind = _known(column, types), types[column]
    if column in _parts(types):
        return [f"{_composed(column, types)} as {name}"]
    if not kind.startswith(NUMBERS):
        raise OperationError(f"column '{column}' cannot be summed: it is not a number.")
    of = exact.Kind.of(kind)
    # DuckDB adds integers up to more digits than JSON readers take for a number.
    widest = "bigint" if of.whole else f"decimal({exact.MOST_DIGITS},{of.scale})"
    total = exact.exact_sum(_in_full(column, types), of) if full else exact.plain_sum(name, of)
    return _beside(total, widest, column)


def _composed(column: str, types: Mapping[str, str]) -> str:
    """A measure of several parts for a group: the parts of its rows are added up first."""
    one = _parts(types)[column]
    totals = [_total(part, types) for part in one.parts]
    return one.sql("duckdb", *totals)


def _total(part: str, types: Mapping[str, str]) -> str:
    kind = exact.Kind.of(types[part])
    total = exact.exact_sum(_in_full(part, types), kind)
    return f"try_cast({total} as hugeint)" if kind.whole else total


def _parts(types: Mapping[str, str]) -> dict[str, Measure]:
    """The measures of several parts among the columns."""
    numbers = {n: exact.Kind.of(t) for n, t in types.items() if t.startswith(NUMBERS)}
    return {one.name: one for one in composed_in(numbers)}


def _most(column: str, types: Mapping[str, str], full: bool) -> list[str]:
    """The maximum of a column, also of numbers too large for its type."""
    name, kind = _known(column, types), types[column]
    if not full or exact.BESIDE + column not in types:
        return [f"max({name}) as {name}"]
    most = exact.exact_sum(_in_full(column, types), exact.Kind.of(kind), function="max")
    return _beside(most, kind, column)


def _in_full(column: str, types: Mapping[str, str]) -> str:
    """A number as text, also if it is too large for its type."""
    beside = quoted(exact.BESIDE + column) if exact.BESIDE + column in types else "null"
    return f"coalesce(cast({quoted(column)} as varchar), {beside})"


def _beside(total: str, kind: str, column: str) -> list[str]:
    fitting = f"try_cast({total} as {kind})"
    beside = quoted(exact.BESIDE + column)
    return [
        f"{fitting} as {quoted(column)}",
        f"case when {fitting} is null then cast({total} as varchar) end as {beside}",
    ]
