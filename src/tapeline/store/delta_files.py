"""A Delta table for reading: its live files, its columns, and what is wrong with it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from tapeline.errors import OperationError

# Housekeeping makes checkpoints and cleans the log between batches, never inside a commit.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
LogError = DeltaError  # a table's log cannot be read


File = tuple[str, int | None, int | None]


@dataclass
class OpenTable:
    """A table that this process has opened for reading, as far as it has looked."""

    table: DeltaTable
    log: int  # the inode of its log: another one is another table in the same place
    version: int
    files: list[File]


# Opening a table costs many times what following it does: readers of a process share handles.
_followed: dict[Path, OpenTable] = {}
_following = threading.Lock()


def read_files(folder: Path) -> list[File]:
    """The live files of a table now, with the lowest and highest batch in each, if known."""
    with _following:
        try:
            log = os.stat(folder / "_delta_log").st_ino
        except FileNotFoundError:
            _followed.pop(folder, None)
            return []
        known = _followed.get(folder)
        if known is not None and known.log == log:
            try:
                known.table.update_incremental()
            except (TableNotFoundError, DeltaError, OSError):
                known = None
        if known is None or known.log != log:
            try:
                table = DeltaTable(str(folder))
            except TableNotFoundError:
                return []
            known = _followed[folder] = OpenTable(table, log, -1, [])
        if known.version != known.table.version():
            known.files = files_of(known.table, folder)
            known.version = known.table.version()
        return known.files


def files_of(table: DeltaTable, base: Path) -> list[File]:
    adds = pa.table(table.get_add_actions(flatten=True))
    names = adds.schema.names
    unknown: list[int | None] = [None] * adds.num_rows
    column = next((n for n in ("_batch", "batch", "part") if f"max.{n}" in names), "")
    low = adds.column(f"min.{column}").to_pylist() if column else unknown
    high = adds.column(f"max.{column}").to_pylist() if column else unknown
    paths = [str(base / path) for path in adds.column("path").to_pylist()]
    return sorted(zip(paths, low, high, strict=True))


def within(files: Iterable[tuple[str, int | None, int | None]], first: int, last: int) -> list[str]:
    """The files that may hold a batch between first and last."""
    return [
        path
        for path, low, high in files
        if (high is None or high >= first) and (low is None or low <= last)
    ]


def refuse_missing(folder: Path) -> None:
    """Refuse a table with a live file that is not there, whoever reads it next."""
    for path, _, _ in read_files(folder):
        if not os.path.exists(path):
            raise OperationError(
                f"{folder}: a file of this table is missing or damaged: {path}. Restore it from a "
                "backup."
            )


def read_whole(folder: Path, most_bytes: int) -> pa.Table | None:
    """All rows of a table that others write; None if its files are larger. Raises OSError."""
    try:
        table = DeltaTable(str(folder))
        sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
        if sum(sizes) > most_bytes:
            return None
        return table.to_pyarrow_table()
    except (DeltaError, pa.ArrowException) as error:
        raise OSError(str(error).strip().split("\n")[0]) from None


def tables_below(home: Path) -> list[Path]:
    """The folders of all tables below a folder."""
    return sorted(log.parent for log in home.rglob("_delta_log")) if home.exists() else []


def stored_schema(folder: Path) -> pa.Schema:
    """The columns of a table as it is stored."""
    try:
        return pa.schema(DeltaTable(str(folder)).schema().to_arrow())
    except TableNotFoundError:
        raise OperationError(f"{folder} does not exist yet. Run the pipeline once.") from None


def damage(folder: Path) -> str:
    """What is wrong with a table's log or files, from the log alone; empty if nothing is."""
    try:
        refuse_empty_log(folder)
        adds = pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True))
    except OperationError as error:
        return str(error)
    except (DeltaError, OSError) as error:
        return f"its Delta log cannot be read: {error}"
    for name, size in zip(adds["path"].to_pylist(), adds["size_bytes"].to_pylist(), strict=True):
        path = folder / name
        if not path.exists():
            return f"file {name} is missing"
        if path.stat().st_size != size:
            return f"file {name} has {path.stat().st_size:,} bytes, not {size:,}"
    return ""


def overwrite(folder: Path, rows: pa.Table) -> None:
    """Replace all rows of a table that may be deleted at any time, such as a cache."""
    try:
        _overwrite(folder, rows)
    except DeltaError:
        shutil.rmtree(folder)
        _overwrite(folder, rows)


def _overwrite(folder: Path, rows: pa.Table) -> None:
    write_deltalake(str(folder), rows, mode="overwrite", post_commithook_properties=NO_HOOKS)
    DeltaTable(str(folder)).vacuum(
        retention_hours=1, enforce_retention_duration=False, dry_run=False
    )


def log_changed_at(folder: Path) -> int:
    """When a table's log last changed, in nanoseconds; 0 if there is none."""
    try:
        return os.stat(folder / "_delta_log").st_mtime_ns
    except FileNotFoundError:
        return 0


def refuse_empty_log(folder: Path) -> None:
    """Delta takes a commit of no bytes for one without changes: rows would be gone, silently."""
    log = folder / "_delta_log"
    for entry in sorted(log.glob("*.json"))[-2:] if log.is_dir() else []:
        if entry.stat().st_size == 0:
            raise OperationError(
                f"COMMIT_EMPTY: {entry} is empty, probably after a power cut. If it is the last "
                "file in that folder, remove it: the next start then finishes the batch, or names "
                "what is missing."
            )
