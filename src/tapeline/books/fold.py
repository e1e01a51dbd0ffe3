"""Folding a journal: what a summary's numbers are, from its entries up to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from tapeline.books import exact
from tapeline.books.layout import Layout
from tapeline.declare import Summary
from tapeline.declare.duration import parse_duration
from tapeline.store.delta_files import LogError, overwrite, read_files
from tapeline.store.duckdb import (
    Connection,
    QueryError,
    connect,
    quoted,
    register_table,
    view_files,
)


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

    `sums` are the measures and how each is added up, `more` is SQL behind them. Names come as the
    dialect quotes them; a balance exists while its `_entries` are above zero.
    """
    keys = ", ".join(key)
    added = "".join(f", {total} as {name}" for name, total in sums.items())
    entries = "cast(sum(_entries) as bigint) as _entries"
    there = f"group by {keys} having sum(_entries) > 0"
    return f"select {keys}{added}, {entries}{more} from {rows} {there}"


def typed(kinds: Mapping[str, exact.Kind]) -> tuple[list[str], str]:
    """Folded measures in their own types, as SQL, and the flag of a row where one does not fit.

    Such a number is NULL: a sum is never NULL otherwise.
    """
    casts = {name: f"try_cast({name} as {kind.sql})" for name, kind in kinds.items()}
    outgrown = " or ".join(f"{cast} is null" for cast in casts.values()) or "false"
    return [f"{cast} as {name}" for name, cast in casts.items()], f"({outgrown}) as _overflow"


def fold_view(
    connection: Connection,
    layout: Layout,
    summary: Summary,
    batch: int,
    clock: Clock | None = None,
) -> bool:
    """Make the folded summary readable under its own name, as of a batch; False if it is empty.

    With a clock each window has its `_status`; without one, the clock of its last change. A number
    that outgrew its type is NULL there, and `exact_rows` has it.
    """
    journal = f"{summary.name}__journal"
    if not register_table(connection, journal, layout.journal(summary.name), (0, batch)):
        return False
    start = _register_balances(connection, layout, summary, batch)
    kinds = {quoted(m): kind for m, kind in kinds_of(connection, journal, summary).items()}
    keys = [quoted(name) for name in summary.key]
    columns = ", ".join([*keys, *kinds, "_entries", "_clock"])
    rows = f"select {columns} from {journal} where _batch > {start} and _batch <= {batch}"
    if start:
        rows += f" union all select {columns} from {summary.name}__balances"
    last = ", max(_clock) as _clock" if clock is None else clock.status(summary)
    fold = folded(f"({rows})", keys, exact.sums_of(connection, f"({rows})", kinds), last)
    measures, overflow = typed(kinds)
    told = [name for name in ("_clock", "_status") if f" as {name}" in last]
    beside = [
        f"case when try_cast({name} as {kind.sql}) is null then cast({name} as varchar) end "
        f"as {quoted(exact.BESIDE + name[1:-1])}"
        for name, kind in kinds.items()
    ]
    shown = ", ".join([*keys, *measures, "_entries", *told, overflow])
    for view, selected in (
        (summary.name, shown),
        (exactly(summary.name), ", ".join([shown, *beside])),
    ):
        connection.execute(
            f"create or replace temp view {quoted(view)} as select {selected} from ({fold}) "
            f"order by {', '.join(keys)}"
        )
    return True


def exact_rows(connection: Connection, summary: Summary, where: str = "true") -> pa.Table:
    """The rows of a summary that `fold_view` made readable, every number in full."""
    query = f"select * from {quoted(exactly(summary.name))} as folded where {where}"
    return exact.settled(connection.sql(query).to_arrow_table())


def exactly(summary: str) -> str:
    """The view of a folded summary that has the numbers which outgrew their types, as text."""
    return f"{summary}__exactly"


def _register_balances(connection: Connection, layout: Layout, summary: Summary, batch: int) -> int:
    """The batch up to which stored balances can be used; 0 when there are none to use."""
    name = f"{summary.name}__balances"
    try:
        files = read_files(layout.balances(summary.name))
        if not files:
            return 0
        view_files(connection, name, [path for path, _, _ in files])
        (found,) = connection.execute(f"select max(_batch) from {name}").fetchall()
    except (LogError, QueryError):
        return 0  # a cache that is damaged is no cache: the journal holds all of it
    through = int(found[0] or 0)
    return through if through <= batch else 0


def write_balances(layout: Layout, summary: Summary, batch: int) -> None:
    """Store the fold up to a published batch: a cache that may be deleted at any time."""
    with connect() as connection:
        if not fold_view(connection, layout, summary, batch):
            return
        rows = exact_rows(connection, summary)
        measures = kinds_of(connection, f"{summary.name}__journal", summary)
        stored = connection.sql(f"select * from {quoted(summary.name)} limit 0").to_arrow_table()
    schema = stored.schema.remove(stored.schema.get_field_index(exact.OVERFLOW))
    table = exact.in_parts(rows, schema, list(measures))
    table = table.append_column("_batch", pa.array([batch] * table.num_rows, pa.int64()))
    overwrite(layout.balances(summary.name), _plain(table))


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
