"""DuckDB over the live files of the tables: one place that opens it."""

from __future__ import annotations

import atexit
import threading
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from tapeline.errors import OperationError
from tapeline.store.delta_files import read_files, within

# What other rooms call by our names: another library would be met here alone.
Connection: TypeAlias = duckdb.DuckDBPyConnection
QueryError = duckdb.Error
NotThere = duckdb.CatalogException  # a table or view of that name
OutOfRange = duckdb.OutOfRangeException
ConversionFailed = duckdb.ConversionException
Interrupted = duckdb.InterruptException
OutOfMemory = duckdb.OutOfMemoryException
SELECT = duckdb.StatementType.SELECT
MEMORY_LIMIT = "2GB"
_opening = threading.Lock()
LAST_BATCH = 2**62


@cache
def _database() -> Connection:
    """The process's one in-memory database: no files, no network, UTC."""
    connection = duckdb.connect(":memory:", config={"threads": "2", "memory_limit": MEMORY_LIMIT})
    connection.execute("SET TimeZone = 'UTC'")
    atexit.register(_close)
    return connection


def _close() -> None:
    """Let go of the database before the interpreter does: DuckDB complains of what it finds."""
    _database().close()
    _database.cache_clear()


def connect() -> Connection:
    """A connection of one's own: its temporary views are seen by nobody else."""
    with _opening:
        return _database().cursor()


def enclosed() -> Connection:
    """A database apart, for SQL that we did not write: no files, no network, no settings.

    A SELECT alone is no wall: in this DuckDB its WITH may hold a COPY.
    """
    connection = duckdb.connect(":memory:", config={"threads": "2", "memory_limit": MEMORY_LIMIT})
    for setting in (
        "TimeZone = 'UTC'",
        "temp_directory = ''",  # what does not fit into memory is refused, not spilled
        "python_enable_replacements = false",  # nor are Python's variables tables
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"set {setting}")
    return connection


def register_table(
    connection: Connection,
    name: str,
    folder: Path,
    batches: tuple[int, int] = (0, LAST_BATCH),
    by_name: bool = False,
) -> bool:
    """Make a table's live files readable under a name; False when it has none."""
    files = within(read_files(folder), *batches)
    return _registered(connection, name, folder, files, by_name)


def _registered(
    connection: Connection, name: str, folder: Path, files: list[str], by_name: bool = False
) -> bool:
    if not files:
        return False
    try:
        view_files(connection, name, files, by_name)
    except (duckdb.Error, OSError, pa.ArrowInvalid) as error:
        raise OperationError(
            f"{folder}: a file of this table is missing or damaged: {error}. Restore it from a "
            "backup."
        ) from None
    return True


def register_tape(
    connection: Connection, name: str, folder: Path, parts: tuple[int, int] = (0, LAST_BATCH)
) -> bool:
    """A tape, whose older files may lack columns that its newer ones have.

    Only the files that may hold one of these parts. A piece that was not compacted is one part,
    and its number is its name.
    """
    files = [path for path in within(read_files(folder), *parts) if _may_hold(path, parts)]
    return _registered(connection, name, folder, files, by_name=True)


def _may_hold(path: str, parts: tuple[int, int]) -> bool:
    stem = Path(path).stem
    return not stem.isdigit() or parts[0] <= int(stem) <= parts[1]


def view_files(connection: Connection, name: str, files: list[str], by_name: bool = False) -> None:
    """A temporary view over Parquet files, which an enclosed database gets from Arrow's reader."""
    (reaches,) = connection.execute("select current_setting('enable_external_access')").fetchall()
    if not reaches[0]:
        import pyarrow.dataset as ds  # takes pandas along, which most commands never need

        connection.register(name, ds.dataset(files, format="parquet"))
        return
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    connection.execute(
        f'create or replace temp view "{name}" as '
        f"select * from read_parquet([{listed}], union_by_name = {by_name})"
    )


def read_parquet(file: Path) -> pa.Table:
    """All rows of a Parquet file."""
    with connect() as connection:
        view_files(connection, "rows_of_file", [str(file)])
        return connection.sql("select * from rows_of_file").to_arrow_table()


def quoted(name: str) -> str:
    """A column's name as SQL writes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def rows_of(
    folder: Path, columns: str, since: int = 0, until: int = LAST_BATCH
) -> list[dict[str, Any]]:
    """Rows of one table from a batch on, as dictionaries; none when it does not exist yet."""
    where = f"batch between {int(since)} and {int(until)}"
    rows: list[dict[str, Any]] = arrow_of(folder, columns, where, (since, until)).to_pylist()
    return rows


def arrow_of(
    folder: Path,
    columns: str,
    where: str = "true",
    batches: tuple[int, int] = (0, LAST_BATCH),
) -> pa.Table:
    """Columns of one table; empty when it does not exist yet."""
    with connect() as connection:
        if not register_table(connection, "rows_of_table", folder, batches):
            return pa.table({})
        query = f"select {columns} from rows_of_table where {where}"
        return connection.sql(query).to_arrow_table()


def newest_batch(folder: Path) -> int:
    """The highest batch in a table, from its file statistics alone."""
    return max((high for _, _, high in read_files(folder) if high is not None), default=0)
