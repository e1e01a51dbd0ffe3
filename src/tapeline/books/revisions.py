"""Why a number is what it is: its revisions, the records of each, and what changed since a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from tapeline.books import Books, exact
from tapeline.books.fold import kinds_of
from tapeline.books.generations import History, view_journal
from tapeline.books.lineage import RecordsPage, Row, records_of
from tapeline.books.measures import shown_numbers
from tapeline.books.reader import ReadPoint
from tapeline.declare import Summary
from tapeline.errors import QuestionError, did_you_mean
from tapeline.store.duckdb import Connection, connect, quoted, register_table

RECORDS = 1_000  # maximum records listed per revision, unless asked for more


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


Key = Sequence[str | None]  # a value per column of the key; None matches every value


def why(books: Books, name: str, key: Key, limit: int = RECORDS) -> list[Revision]:
    """The revisions of one number of a summary, in order, each with its records."""
    summary = find_summary(books, name)
    cut = books.cut()
    with connect() as connection:
        history = History(books.layout, cut.commit, (0, cut.batch))
        if not view_journal(connection, "j", history, summary):
            return []
        measures = kinds_of(connection, "j", summary)
        where, values = _key_condition(connection, summary, key)

        def query(add: exact.Summing) -> str:
            sums = ", ".join(add(quoted(m), kind) for m, kind in measures.items())
            return (
                f"select _batch, _cause, sum(_entries)::bigint, {sums} from j "
                f"where {where} and _batch <= {cut.batch} group by _batch, _cause "
                "order by _batch, _cause"
            )

        rows = exact.summed(connection, query, values)
        times = _published(connection, books, [row[0] for row in rows])
        found: dict[tuple[int, str], list[Row]] = {}
        if limit:
            condition = (f"{where} and _batch <= ?", [*values, cut.batch])
            page = RecordsPage(limit, per_revision=True)
            found = records_of(connection, books, summary, condition, page)
    running: Row = dict.fromkeys(measures, 0)
    revisions = []
    for batch, cause, entries, *changes in rows:
        pairs = zip(measures.items(), changes, strict=True)
        moved = {m: kind.number(by) for (m, kind), by in pairs}
        before = shown_numbers(running, measures)
        running = {m: exact.add(running[m], moved[m]) for m in measures}
        value = shown_numbers(running, measures)
        change = {m: moved[m] if m in moved else _step(before[m], value[m]) for m in value}
        some = found.get((batch, cause), [])
        revisions.append(Revision(batch, times.get(batch), cause, change, value, entries, some))
    return revisions


def _step(before: Decimal | None, after: Decimal | None) -> Decimal | None:
    """By how much an average changed, from nothing at first and to nothing at last."""
    if before is None or after is None:
        return after
    return after - before


def records(
    books: Books, name: str, key: Key, revision: tuple[int, str], page: RecordsPage
) -> list[Row]:
    """The records of one revision (its batch and cause) of a number, a page at a time."""
    summary = find_summary(books, name)
    batch, cause = revision
    cut = books.cut()
    if batch > cut.batch:
        return []
    with connect() as connection:
        history = History(books.layout, cut.commit, (batch, batch))
        if not view_journal(connection, "j", history, summary):
            return []
        where, values = _key_condition(connection, summary, key)
        condition = f"{where} and _batch = ? and _cause = ?"
        found = records_of(connection, books, summary, (condition, [*values, batch, cause]), page)
    return found.get((batch, cause), [])


def changes(books: Books, since: datetime, name: str | None = None) -> list[Row]:
    """Every published number that is another now than it was at a moment, and what changed it."""
    summaries = [find_summary(books, name)] if name else list(books.plan.summaries)
    then, now = books.cut(since), books.cut()
    found: list[Row] = []
    for summary in summaries:
        found += changed_between(books, summary, then, now)
    return found


def find_summary(books: Books, name: str) -> Summary:
    summaries = books.plan.pipeline.summaries
    if name not in summaries:
        raise QuestionError(f"summary '{name}' not found.{did_you_mean(name, summaries)}")
    return summaries[name]


def changed_between(books: Books, summary: Summary, then: ReadPoint, now: ReadPoint) -> list[Row]:
    """The numbers of a summary that are not the same at two batches."""
    with connect() as connection:
        history = History(books.layout, now.commit, (0, now.batch))
        if not view_journal(connection, "j", history, summary):
            return []
        kinds = kinds_of(connection, "j", summary)

        def query(add: exact.Summing) -> str:
            return _compared(summary, kinds, (then.batch, now.batch), add)

        listed = [_moved(summary, kinds, row) for row in exact.summed(connection, query)]
        listed = [row for row in listed if row["differs"]]
        times = _published(connection, books, [row["batch"] for row in listed])
    return [
        {
            "summary": summary.name,
            "key": row["key"],
            "old": row["old"] if row["was_published"] else None,
            "new": row["new"],
            "causes": row["causes"],
            "batch": row["batch"],
            "at": times.get(row["batch"]),
        }
        for row in listed
    ]


def _compared(
    summary: Summary, kinds: dict[str, exact.Kind], batches: tuple[int, int], add: exact.Summing
) -> str:
    """A query for the numbers that entries moved between two batches: before, and after."""
    then, now = batches
    key = ", ".join(quoted(k) for k in summary.key)
    sums = ", ".join(
        f"{add(quoted(m), kind, f' filter (_batch <= {then})')}, {add(quoted(m), kind)}"
        for m, kind in kinds.items()
    )
    return (
        f"select {key}, {sums}, "
        f"string_agg(distinct _cause, ', ' order by _cause) filter (_batch > {then}), max(_batch), "
        f"coalesce(sum(_entries) filter (_batch <= {then}), 0) > 0 "
        f"from j where _batch <= {now} group by {key} having max(_batch) > {then} order by {key}"
    )


def _moved(summary: Summary, kinds: dict[str, exact.Kind], row: tuple[Any, ...]) -> Row:
    """A row of that query; a number that did not exist yet counts as zero."""
    key, sums = row[: len(summary.key)], row[len(summary.key) : -3]
    old = {m: kind.number(sums[2 * n]) for n, (m, kind) in enumerate(kinds.items())}
    new = {m: kind.number(sums[2 * n + 1]) for n, (m, kind) in enumerate(kinds.items())}
    named = dict(zip(("causes", "batch", "was_published"), row[-3:], strict=True))
    old, new = shown_numbers(old, kinds), shown_numbers(new, kinds)
    key_of = dict(zip(summary.key, key, strict=True))
    return {"key": key_of, "old": old, "new": new, "differs": old != new} | named


def _key_condition(connection: Connection, summary: Summary, key: Key) -> tuple[str, list[Any]]:
    """A condition on the key, with its values as parameters in the columns' own types."""
    if len(key) != len(summary.key):
        raise QuestionError(
            f"summary '{summary.name}' has the key {', '.join(summary.key)}. Give "
            f"{len(summary.key)} values, not {len(key)}."
        )
    types = dict(connection.execute("select column_name, column_type from (describe j)").fetchall())
    said = {name: value for name, value in zip(summary.key, key, strict=True) if value is not None}
    for name, value in said.items():
        (known,) = connection.execute(f"select try_cast(? as {types[name]}) is null", [value])\
            .fetchall()  # fmt: skip
        if known[0]:
            raise QuestionError(
                f"'{value}' is not a {types[name].lower()}, as the key '{name}' needs."
            )
    parts = [f"{quoted(name)} = cast(? as {types[name]})" for name in said]
    return " and ".join(["true", *parts]), list(said.values())


def _published(connection: Connection, books: Books, batches: Sequence[int]) -> dict[int, datetime]:
    """When batches were published."""
    wanted = sorted(set(batches))
    within = (wanted[0], wanted[-1]) if wanted else (0, 0)
    if not wanted or not register_table(connection, "commits", books.layout.commits, within):
        return {}  # a preview asks for a batch that is not there yet
    rows = connection.execute(
        "select batch, \"at\" from commits where event = 'published' and batch in "
        f"({', '.join(map(str, wanted))})"
    ).fetchall()
    return dict(rows)
