"""Folding a journal: what a summary's numbers are, from its entries up to a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from tapeline.books import exact
from tapeline.books.layout import Layout
from tapeline.books.measures import Engine, composed_in, measures_of, shown_rows
from tapeline.books.measures import stored_rows as parts_of_rows
from tapeline.declare import Summary
from tapeline.declare.duration import parse_duration
from tapeline.errors import QuestionError
from tapeline.store.delta_files import LogError, overwrite, read_files
from tapeline.store.duckdb import (
    Connection,
    QueryError,
    connect,
    quoted,
    register_table,
    view_files,
)

Quote = Callable[[str], str]  # a name as SQL writes it


def kinds_of(connection: Connection, table: str, summary: Summary) -> dict[str, exact.Kind]:
    """The measures of a journal, each with its type."""
    described = connection.execute(f'select column_name, column_type from (describe "{table}")')
    return {
        name: exact.Kind.of(kind)
        for name, kind in described.fetchall()
        if name not in summary.key and not name.startswith("_")
    }


@dataclass(frozen=True)
class Clock:
    """What tells a window's status: the highest event time so far, and when a window is final."""

    micros: int
    final_after: timedelta

    def status(self, summary: Summary) -> str:
        """An SQL expression for the status of a window, or nothing for a summary without time."""
        if summary.time is None:
            return ""
        starts = f"epoch_us(cast({quoted(summary.time)} as timestamp))"
        case = status_of(summary, self.final_after, str(self.micros), "max(_clock)", starts)
        return f", {case} as _status"


def status_of(
    summary: Summary, final_after: timedelta, clock: str, changed: str, starts: str
) -> str:
    """The rule of a window's status, from SQL expressions in microseconds.

    They are the clock now, the clock when the window last changed, and the window's start.
    """
    assert summary.width is not None, "time and width come together"
    end = _micros(parse_duration(summary.width))
    final = end + _micros(final_after)
    return (
        f"case when {changed} >= {starts} + {final} then 'restated' "
        f"when {clock} >= {starts} + {final} then 'final' "
        f"when {clock} >= {starts} + {end} then 'provisional' else 'open' end"
    )


def folded(rows: str, key: Sequence[str], sums: Mapping[str, str], more: str = "") -> str:
    """The fold, as SQL: one row per key, every measure as its whole sum, not yet in its own type.

    `sums` are the measures and how each is added up, `more` is SQL after them. Names come as the
    dialect quotes them; a balance exists while its `_entries` are above zero.
    """
    keys = ", ".join(key)
    added = "".join(f", {total} as {name}" for name, total in sums.items())
    entries = "cast(sum(_entries) as bigint) as _entries"
    there = f"group by {keys} having sum(_entries) > 0"
    return f"select {keys}{added}, {entries}{more} from {rows} {there}"


def typed(
    kinds: Mapping[str, exact.Kind], quote: Quote = quoted, engine: Engine = "duckdb"
) -> tuple[list[str], str]:
    """Folded measures in their own types, as SQL, and the flag of a row where one does not fit.

    Such a number is NULL: a sum is never NULL otherwise.
    """
    shown = [
        f"{one.sql(engine, *map(quote, one.parts))} as {quote(one.name)}"
        for one in measures_of(kinds)
    ]
    casts = [f"try_cast({quote(name)} as {kind.sql}) is null" for name, kind in kinds.items()]
    return shown, f"({' or '.join(casts) or 'false'}) as _overflow"


def fold_view(
    connection: Connection,
    layout: Layout,
    summary: Summary,
    batch: int,
    clock: Clock | None = None,
    generation: int = 1,
) -> bool:
    """Make the folded summary readable under its own name, as of a batch; False if it is empty.

    With a clock each window has its `_status`; without one, the clock of its last change. A number
    that outgrew its type is NULL there, and `exact_rows` has it.
    """
    journal = f"{summary.name}__journal"
    folder = layout.journal(summary.name, generation)
    if not generation or not register_table(connection, journal, folder, (0, batch)):
        return False
    balances = layout.balances(summary.name, generation)
    start = _register_balances(connection, balances, summary, batch)
    _refuse_other_key(connection, journal, summary)
    kinds = kinds_of(connection, journal, summary)
    keys = [quoted(name) for name in summary.key]
    columns = ", ".join([*keys, *map(quoted, kinds), "_entries", "_clock"])
    rows = f"select {columns} from {journal} where _batch > {start} and _batch <= {batch}"
    if start:
        rows += f" union all select {columns} from {summary.name}__balances"
    last = ", max(_clock) as _clock" if clock is None else clock.status(summary)
    named = {quoted(name): kind for name, kind in kinds.items()}
    fold = folded(f"({rows})", keys, exact.sums_of(connection, f"({rows})", named), last)
    measures, overflow = typed(kinds)
    told = [name for name in ("_clock", "_status") if f" as {name}" in last]
    shown = ", ".join([*keys, *measures, "_entries", *told, overflow])
    for view, selected in (
        (summary.name, shown),
        (exactly(summary.name), ", ".join([shown, *_beside(kinds)])),
    ):
        connection.execute(
            f"create or replace temp view {quoted(view)} as select {selected} from ({fold}) "
            f"order by {', '.join(keys)}"
        )
    return True


def _refuse_other_key(connection: Connection, journal: str, summary: Summary) -> None:
    """An earlier generation may have been grouped by other columns."""
    described = connection.execute(f'select column_name from (describe "{journal}")').fetchall()
    there = {name for (name,) in described}
    lacking = [name for name in summary.key if name not in there]
    if lacking:
        raise QuestionError(
            f"summary '{summary.name}' had no {', '.join(lacking)} in its key at that time: it was "
            "written by other code. Ask with the file of that time ('tapeline generations')."
        )


def _beside(kinds: Mapping[str, exact.Kind]) -> list[str]:
    """SQL of what readers in full need: parts of measures, and as text what outgrew its type."""
    parts = {part for one in composed_in(kinds) for part in one.parts}
    found = []
    for name, kind in kinds.items():
        cast = f"try_cast({quoted(name)} as {kind.sql})"
        if name in parts:
            found.append(f"{cast} as {quoted(name)}")
        text = f"case when {cast} is null then cast({quoted(name)} as varchar) end"
        found.append(f"{text} as {quoted(exact.BESIDE + name)}")
    return found


def exact_rows(connection: Connection, summary: Summary, where: str = "true") -> pa.Table:
    """The rows of a summary that `fold_view` made readable, every number in full."""
    return shown_rows(_in_full(connection, summary, where))


def stored_rows(connection: Connection, summary: Summary, where: str = "true") -> pa.Table:
    """The same rows with the parts of measures in the place of those that have several."""
    return parts_of_rows(_in_full(connection, summary, where))


def _in_full(connection: Connection, summary: Summary, where: str) -> pa.Table:
    query = f"select * from {quoted(exactly(summary.name))} as folded where {where}"
    return exact.settled(connection.sql(query).to_arrow_table())


def exactly(summary: str) -> str:
    """The view of a folded summary that has the numbers which outgrew their types, as text."""
    return f"{summary}__exactly"


def _register_balances(connection: Connection, folder: Path, summary: Summary, batch: int) -> int:
    """The batch up to which stored balances can be used; 0 when there are none to use."""
    name = f"{summary.name}__balances"
    try:
        files = read_files(folder)
        if not files:
            return 0
        view_files(connection, name, [path for path, _, _ in files])
        (found,) = connection.execute(f"select max(_batch) from {name}").fetchall()
    except (LogError, QueryError):
        return 0  # a cache that is damaged is no cache: the journal holds all of it
    through = int(found[0] or 0)
    return through if through <= batch else 0


def write_balances(layout: Layout, summary: Summary, batch: int, generation: int = 1) -> None:
    """Store the fold up to a published batch: a cache that may be deleted at any time."""
    with connect() as connection:
        if not fold_view(connection, layout, summary, batch, generation=generation):
            return
        rows = stored_rows(connection, summary)
        measures = list(kinds_of(connection, f"{summary.name}__journal", summary))
        columns = ", ".join(map(quoted, (*summary.key, *measures, "_entries", "_clock")))
        empty = f"select {columns} from {quoted(exactly(summary.name))} limit 0"
        schema = connection.sql(empty).to_arrow_table().schema
    table = exact.in_parts(rows, schema, measures)
    table = table.append_column("_batch", pa.array([batch] * table.num_rows, pa.int64()))
    overwrite(layout.balances(summary.name, generation), _plain(table))


def _plain(table: pa.Table) -> pa.Table:
    """Timestamps in UTC by that very name, as Delta wants them."""
    fields = [
        pa.field(f.name, pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) and f.type.tz
        else f
        for f in table.schema
    ]  # fmt: skip
    return table.cast(pa.schema(fields))


def _micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)
