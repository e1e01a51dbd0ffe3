"""Folding a journal: what a summary's numbers are, from its entries up to a batch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from tapeline.books.delta import NO_HOOKS, read_files
from tapeline.books.layout import Layout
from tapeline.books.query import connect, quoted, register_table, view_files
from tapeline.declare import Summary
from tapeline.declare.duration import parse_duration


def measures_of(connection: duckdb.DuckDBPyConnection, table: str, summary: Summary) -> list[str]:
    """The measures of a journal: its columns that are neither key nor Tapeline's own."""
    names = [row[0] for row in connection.execute(f'describe "{table}"').fetchall()]
    return [name for name in names if name not in summary.key and not name.startswith("_")]


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
    """The fold, as SQL: one row per key, every measure added up in its own type.

    Names come as the dialect quotes them; a balance exists while its `_entries` are above zero.
    """
    keys = ", ".join(key)
    added = ", ".join(f"cast(sum({name}) as {kind}) as {name}" for name, kind in sums.items())
    return f"select {keys}, {added}{more} from {rows} group by {keys} having sum(_entries) > 0"


def fold_view(
    connection: duckdb.DuckDBPyConnection,
    layout: Layout,
    summary: Summary,
    batch: int,
    clock: Clock | None = None,
) -> bool:
    """Make the folded summary readable under its own name, as of a batch; False if it is empty.

    With a clock each window has its `_status`; without one, the clock of its last change.
    """
    journal = f"{summary.name}__journal"
    if not register_table(connection, journal, layout.journal(summary.name), (0, batch)):
        return False
    start = _register_balances(connection, layout, summary, batch)
    measures = measures_of(connection, journal, summary)
    keys = [quoted(name) for name in summary.key]
    names = (*measures, "_entries")
    columns = ", ".join([*keys, *map(quoted, names), "_clock"])
    rows = f"select {columns} from {journal} where _batch > {start} and _batch <= {batch}"
    if start:
        rows += f" union all select {columns} from {summary.name}__balances"
    types = dict(connection.execute(f"select column_name, column_type from (describe {journal})")
                 .fetchall())  # fmt: skip
    last = ", max(_clock) as _clock" if clock is None else clock.status(summary)
    fold = folded(f"({rows})", keys, {quoted(name): types[name] for name in names}, last)
    connection.execute(
        f"create or replace temp view {quoted(summary.name)} as {fold} order by {', '.join(keys)}"
    )
    return True


def _register_balances(
    connection: duckdb.DuckDBPyConnection, layout: Layout, summary: Summary, batch: int
) -> int:
    """The batch up to which stored balances can be used; 0 when there are none to use."""
    name = f"{summary.name}__balances"
    try:
        files = read_files(layout.balances(summary.name))
        if not files:
            return 0
        view_files(connection, name, [path for path, _, _ in files])
        (found,) = connection.execute(f"select max(_batch) from {name}").fetchall()
    except (DeltaError, duckdb.Error):
        return 0  # a cache that is damaged is no cache: the journal holds all of it
    through = int(found[0] or 0)
    return through if through <= batch else 0


def write_balances(layout: Layout, summary: Summary, batch: int) -> None:
    """Store the fold up to a published batch: a cache that may be deleted at any time."""
    with connect() as connection:
        if not fold_view(connection, layout, summary, batch):
            return
        rows = connection.sql(f'select *, {batch}::bigint as _batch from "{summary.name}"')
        table = rows.to_arrow_table()
    folder = layout.balances(summary.name)
    try:
        _overwrite(folder, _plain(table))
    except DeltaError:
        shutil.rmtree(folder)
        _overwrite(folder, _plain(table))


def _overwrite(folder: Path, table: pa.Table) -> None:
    write_deltalake(str(folder), table, mode="overwrite", post_commithook_properties=NO_HOOKS)
    DeltaTable(str(folder)).vacuum(
        retention_hours=1, enforce_retention_duration=False, dry_run=False
    )


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
