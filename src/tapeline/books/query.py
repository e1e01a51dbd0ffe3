"""DuckDB over the live files of the tables: one place that opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tapeline.books.delta import read_files, within
from tapeline.errors import OperationError

MEMORY_LIMIT = "2GB"
LAST_BATCH = 2**62


def connect() -> duckdb.DuckDBPyConnection:
    """A private in-memory database: no files, no network, UTC."""
    connection = duckdb.connect(":memory:", config={"threads": "2", "memory_limit": MEMORY_LIMIT})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def register_table(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    folder: Path,
    batches: tuple[int, int] = (0, LAST_BATCH),
) -> bool:
    """Make a table's live files readable under a name; False when it has none."""
    files = within(read_files(folder), *batches)
    if not files:
        return False
    try:
        connection.read_parquet(files).create_view(name, replace=True)
    except duckdb.Error as error:
        raise OperationError(
            f"{folder}: a file of this table is missing or damaged: {error}. Restore it from a "
            "backup; the tape and its archive hold what is needed to make it again."
        ) from None
    return True


def rows_of(folder: Path, columns: str, since: int = 0) -> list[dict[str, Any]]:
    """Rows of one table from a batch on, as dictionaries; none when it does not exist yet."""
    where = f"batch >= {int(since)}"
    rows: list[dict[str, Any]] = arrow_of(folder, columns, where, since).to_pylist()
    return rows


def arrow_of(folder: Path, columns: str, where: str = "true", since: int = 0) -> pa.Table:
    """Columns of one table; empty when it does not exist yet."""
    with connect() as connection:
        if not register_table(connection, "rows_of_table", folder, (since, LAST_BATCH)):
            return pa.table({})
        query = f"select {columns} from rows_of_table where {where}"
        return connection.sql(query).to_arrow_table()


def newest_batch(folder: Path) -> int:
    """The highest batch in a table, from its file statistics alone."""
    return max((high for _, _, high in read_files(folder) if high is not None), default=0)
