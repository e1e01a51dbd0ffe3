"""Folding a journal: what a summary's numbers are, from its entries up to a batch."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tapeline.books.delta import NO_HOOKS, read_files
from tapeline.books.layout import Layout
from tapeline.books.query import connect, register_table, view_files
from tapeline.declare import Summary


def measures_of(connection: duckdb.DuckDBPyConnection, table: str, summary: Summary) -> list[str]:
    """The measures of a journal: its columns that are neither key nor Tapeline's own."""
    names = [row[0] for row in connection.execute(f'describe "{table}"').fetchall()]
    return [name for name in names if name not in summary.key and not name.startswith("_")]


def fold_view(
    connection: duckdb.DuckDBPyConnection, layout: Layout, summary: Summary, batch: int
) -> bool:
    """Make the folded summary readable under its own name, as of a batch; False if it is empty."""
    journal = f"{summary.name}__journal"
    if not register_table(connection, journal, layout.journal(summary.name), (0, batch)):
        return False
    start = _register_balances(connection, layout, summary, batch)
    measures = measures_of(connection, journal, summary)
    keys = ", ".join(_quoted(name) for name in summary.key)
    values = ", ".join(_quoted(name) for name in (*measures, "_entries"))
    rows = f"select {keys}, {values} from {journal} where _batch > {start} and _batch <= {batch}"
    if start:
        rows += f" union all select {keys}, {values} from {summary.name}__balances"
    types = dict(connection.execute(f"select column_name, column_type from (describe {journal})")
                 .fetchall())  # fmt: skip
    sums = ", ".join(
        f"sum({_quoted(name)})::{types[name]} as {_quoted(name)}"
        for name in (*measures, "_entries")
    )
    connection.execute(
        f"create or replace temp view {_quoted(summary.name)} as "
        f"select {keys}, {sums} from ({rows}) "
        f"group by {keys} having sum(_entries) > 0 order by {keys}"
    )
    return True


def _register_balances(
    connection: duckdb.DuckDBPyConnection, layout: Layout, summary: Summary, batch: int
) -> int:
    """The batch up to which stored balances can be used; 0 when there are none to use."""
    folder = layout.balances(summary.name)
    files = read_files(folder)
    if not files:
        return 0
    view_files(connection, f"{summary.name}__balances", [path for path, _, _ in files])
    (found,) = connection.execute(f"select max(_batch) from {summary.name}__balances").fetchall()
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
    write_deltalake(
        str(folder), _plain(table), mode="overwrite", post_commithook_properties=NO_HOOKS
    )
    _drop_old(folder)


def _drop_old(folder: Path) -> None:
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
