"""Every published change of a summary's numbers, batch by batch, read from its journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tapeline.books import exact
from tapeline.books.arrow_rows import as_rows
from tapeline.books.commit import Commit
from tapeline.books.commits import read_commits
from tapeline.books.fold import fold_view, kinds_of, stored_rows
from tapeline.books.generations import History, view_journal
from tapeline.books.layout import Layout
from tapeline.books.measures import shown_fields, shown_numbers
from tapeline.declare import Summary
from tapeline.errors import QuestionError
from tapeline.store.duckdb import Connection, connect, quoted

Row = dict[str, Any]


def history_of(layout: Layout, first: int, last: int) -> History:
    """Which generations hold these batches, as the last of them knows."""
    decided = [row for row in read_commits(layout.commits, last, last) if row.decides]
    commit = decided[-1].commit if decided else Commit()
    return History(layout, commit, (first, last))


def changes_of(history: History, summary: Summary) -> tuple[pa.Schema, Iterator[Row]]:
    """Numbers that some batches changed, each with what it was and is, in the order of the key."""
    with connect() as connection:
        if not view_journal(connection, "j", history, summary):
            return pa.schema([]), iter(())
        kinds = kinds_of(connection, "j", summary)
        stored = connection.sql("select * from j limit 0").to_arrow_table().schema
        moved = _moved(connection, summary, kinds, history.batches)
        before: list[Row] = []
        if _folded_before(connection, history, summary):
            connection.register("moved", moved.select(summary.key))
            same = " and ".join(
                f"folded.{k} is not distinct from moved.{k}" for k in map(quoted, summary.key)
            )
            where = f"exists (select 1 from moved where {same})"
            before = list(as_rows(stored_rows(connection, summary, where)))
    shape = change_shape(summary, list(kinds), stored)
    return shape, _walked(summary, kinds, before, as_rows(moved))


def _folded_before(connection: Connection, history: History, summary: Summary) -> bool:
    """Fold the summary as it was before these batches; False if it had no number with this key."""
    before = history.batches[0] - 1
    generation = history.commit.generation_of(summary.name, before)
    try:
        return fold_view(connection, history.layout, summary, before, generation=generation)
    except QuestionError:
        return False  # other code gave it another key


def _moved(
    connection: Connection,
    summary: Summary,
    kinds: dict[str, exact.Kind],
    batches: tuple[int, int],
) -> pa.Table:
    """What each batch added to every number, in the order of the key."""
    keys = ", ".join(map(quoted, summary.key))
    rows = f"j where _batch between {batches[0]} and {batches[1]}"
    columns = {quoted(name): kind for name, kind in kinds.items()}
    sums = "".join(
        f", {total} as {name}" for name, total in exact.sums_of(connection, rows, columns).items()
    )
    return connection.sql(
        f"select {keys}{sums}, sum(_entries)::bigint as _entries, _batch, "
        "string_agg(distinct _cause, ', ' order by _cause) as _cause "
        f"from {rows} group by {keys}, _batch order by _batch, {keys}"
    ).to_arrow_table()


def _walked(
    summary: Summary, kinds: dict[str, exact.Kind], before: list[Row], moved: Iterator[Row]
) -> Iterator[Row]:
    """Every change of a number, batch by batch; a change that leaves it as it was is none."""
    measures = list(kinds)
    nothing = dict.fromkeys((*measures, "_entries"), 0)
    stands = {tuple(row[k] for k in summary.key): row for row in before}
    for row in moved:
        key = tuple(row[k] for k in summary.key)
        old = stands.get(key, nothing)
        new = {
            m: exact.add(kind.number(old.get(m)), kind.number(row[m])) for m, kind in kinds.items()
        }
        new["_entries"] = old["_entries"] + row["_entries"]
        stands[key] = new
        was, is_now = (_number(one, kinds) for one in (old, new))
        if was != is_now:
            yield {
                **{name: row[name] for name in summary.key},
                "_old": was,
                "_new": is_now,
                "_cause": row["_cause"],
                "_batch": row["_batch"],
            }


def _number(row: Row, kinds: dict[str, exact.Kind]) -> Row | None:
    """A number exists while it has entries."""
    return shown_numbers(row, kinds) if row["_entries"] > 0 else None


def change_shape(summary: Summary, measures: list[str], moved: pa.Schema) -> pa.Schema:
    """The columns of a change, from those of the journal."""
    number = pa.struct(shown_fields(moved, measures))
    own = [moved.field(name) for name in summary.key]
    added = [("_old", number), ("_new", number), ("_cause", pa.string()), ("_batch", pa.int64())]
    return pa.schema([*own, *(pa.field(name, kind) for name, kind in added)])
