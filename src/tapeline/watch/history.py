"""Why a number is what it is: its revisions, the records behind each, and what moved since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from tapeline.books import Books
from tapeline.books.fold import measures_of
from tapeline.books.query import connect, quoted, register_table
from tapeline.books.reader import Cut
from tapeline.declare import Summary
from tapeline.errors import QuestionError, did_you_mean
from tapeline.watch.origin import Page, Row, behind

RECORDS = 1_000  # at most so many records are listed behind one revision, unless asked for more


@dataclass(frozen=True)
class Revision:
    """One published change of a number."""

    batch: int
    at: datetime | None
    cause: str
    change: Row
    value: Row  # after it
    entries: int
    records: list[Row]

    def facts(self) -> Row:
        return dict(vars(self))


Key = Sequence[str | None]  # a value per column of the key; None stands for every one


def why(books: Books, name: str, key: Key, limit: int = RECORDS) -> list[Revision]:
    """The revisions of one number of a summary, in order, with the records behind each."""
    summary = find_summary(books, name)
    cut = books.cut()
    with connect() as connection:
        if not register_table(connection, "j", books.layout.journal(name), (0, cut.batch)):
            return []
        measures = measures_of(connection, "j", summary)
        where, values = _key_condition(connection, summary, key)
        sums = ", ".join(f"sum({quoted(m)})" for m in measures)
        rows = connection.execute(
            f"select _batch, _cause, sum(_entries)::bigint, {sums} from j "
            f"where {where} and _batch <= {cut.batch} group by _batch, _cause "
            "order by _batch, _cause",
            values,
        ).fetchall()
        times = _published(connection, books, [row[0] for row in rows])
        found: dict[tuple[int, str], list[Row]] = {}
        if limit:
            condition = (f"{where} and _batch <= ?", [*values, cut.batch])
            found = behind(connection, books, summary, condition)
    running: Row = dict.fromkeys(measures, 0)
    revisions = []
    for batch, cause, entries, *changes in rows:
        change = dict(zip(measures, changes, strict=True))
        running = {m: running[m] + change[m] for m in measures}
        some = found.get((batch, cause), [])[:limit]
        revisions.append(Revision(batch, times.get(batch), cause, change, running, entries, some))
    return revisions


def records(books: Books, name: str, key: Key, revision: tuple[int, str], page: Page) -> list[Row]:
    """The records behind one revision (its batch and cause) of a number, a page at a time."""
    summary = find_summary(books, name)
    batch, cause = revision
    if batch > books.cut().batch:
        return []
    with connect() as connection:
        if not register_table(connection, "j", books.layout.journal(name), (batch, batch)):
            return []
        where, values = _key_condition(connection, summary, key)
        condition = f"{where} and _batch = ? and _cause = ?"
        found = behind(connection, books, summary, (condition, [*values, batch, cause]), page)
    return found.get((batch, cause), [])


def changes(books: Books, since: datetime, name: str | None = None) -> list[Row]:
    """Every published number that is another now than it was at a moment, and what changed it."""
    summaries = [find_summary(books, name)] if name else list(books.plan.summaries)
    then, now = books.cut(since), books.cut()
    found: list[Row] = []
    for summary in summaries:
        found += _changed(books, summary, then, now)
    return found


def find_summary(books: Books, name: str) -> Summary:
    summaries = books.plan.pipeline.summaries
    if name not in summaries:
        raise QuestionError(f"'{name}' is no summary.{did_you_mean(name, summaries)}")
    return summaries[name]


def _changed(books: Books, summary: Summary, then: Cut, now: Cut) -> list[Row]:
    folder = books.layout.journal(summary.name)
    with connect() as connection:
        if not register_table(connection, "j", folder, (0, now.batch)):
            return []
        measures = measures_of(connection, "j", summary)
        key = ", ".join(quoted(k) for k in summary.key)
        old = ", ".join(
            f"sum({quoted(m)}) filter (_batch <= {then.batch}) as {quoted('old_' + m)}, "
            f"sum({quoted(m)}) as {quoted('new_' + m)}"
            for m in measures
        )
        differs = " or ".join(
            f"coalesce({quoted('old_' + m)}, 0) <> {quoted('new_' + m)}" for m in measures
        )
        rows = connection.execute(
            f"select * from (select {key}, {old}, "
            f"string_agg(distinct _cause, ', ' order by _cause) filter (_batch > {then.batch}) "
            f"as causes, max(_batch) as batch, "
            f"coalesce(sum(_entries) filter (_batch <= {then.batch}), 0) > 0 as was_published "
            f"from j where _batch <= {now.batch} group by {key} "
            f"having max(_batch) > {then.batch}) where {differs} order by {key}"
        )
        names = [column[0] for column in rows.description or ()]
        listed = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
        times = _published(connection, books, [row["batch"] for row in listed])
    return [_change(summary, measures, row, times) for row in listed]


def _change(summary: Summary, measures: list[str], row: Row, times: dict[int, datetime]) -> Row:
    return {
        "summary": summary.name,
        "key": {name: row[name] for name in summary.key},
        "old": {m: row[f"old_{m}"] for m in measures} if row["was_published"] else None,
        "new": {m: row[f"new_{m}"] for m in measures},
        "causes": row["causes"],
        "batch": row["batch"],
        "at": times.get(row["batch"]),
    }


def _key_condition(
    connection: duckdb.DuckDBPyConnection, summary: Summary, key: Key
) -> tuple[str, list[Any]]:
    """A condition on the key, with its values as parameters in the columns' own types."""
    if len(key) != len(summary.key):
        raise QuestionError(
            f"'{summary.name}' has the key {', '.join(summary.key)}: say {len(summary.key)} "
            f"values, not {len(key)}."
        )
    types = dict(connection.execute("select column_name, column_type from (describe j)").fetchall())
    said = {name: value for name, value in zip(summary.key, key, strict=True) if value is not None}
    for name, value in said.items():
        (known,) = connection.execute(f"select try_cast(? as {types[name]}) is null", [value])\
            .fetchall()  # fmt: skip
        if known[0]:
            raise QuestionError(f"'{value}' is no {types[name].lower()} for the key '{name}'.")
    parts = [f"{quoted(name)} = cast(? as {types[name]})" for name in said]
    return " and ".join(["true", *parts]), list(said.values())


def _published(
    connection: duckdb.DuckDBPyConnection, books: Books, batches: Sequence[int]
) -> dict[int, datetime]:
    """When batches were published."""
    wanted = sorted(set(batches))
    if not wanted:
        return {}
    register_table(connection, "commits", books.layout.commits, (wanted[0], wanted[-1]))
    rows = connection.execute(
        "select batch, \"at\" from commits where event = 'published' and batch in "
        f"({', '.join(map(str, wanted))})"
    ).fetchall()
    return dict(rows)
