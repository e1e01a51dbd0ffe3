"""One append-only Delta table, committed by delta-rs under transaction ids."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from tapeline.books.durable import sync
from tapeline.errors import OperationError

# Housekeeping makes checkpoints and cleans the log between batches, never inside a commit.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
# A handle's commits take longer with every version since it was opened: 7 ms, 50 ms after 240.
COMMITS_PER_HANDLE = 20
# Columns whose values hardly repeat: a dictionary of them would be thrown away again.
UNIQUE = {"_position", "_key", "_key_hash", "_content_hash", "_raw", "raw", "body", "hash"}


@dataclass(frozen=True)
class Staged:
    """A Parquet file that is on disk, fsynced, and not yet in its table."""

    table: str
    name: str
    rows: int
    size: int
    batch: int
    hash: str = ""  # of its rows, whatever their order

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Book:
    """An append-only table. One process writes it, under the pipeline's lock."""

    def __init__(self, folder: Path, schema: pa.Schema, application: str) -> None:
        self.folder = folder
        self.schema = schema
        self.application = application
        self.table = _open_or_create(folder, schema)
        self._delta_schema = DeltaSchema.from_arrow(schema)
        self._repeating = [n for n in schema.names if n not in UNIQUE] + ["_position.source"]
        self._opened_at = self.table.version()

    def stage(self, name: str, rows: pa.Table, batch: int) -> Staged:
        """Write rows beside the table's files; written twice under one name is written once."""
        path = self.folder / name
        partial = path.with_suffix(".partial")
        rows = rows.cast(self.schema)
        with partial.open("wb") as file:
            pq.write_table(
                rows,
                file,
                compression="zstd",
                compression_level=1,
                # Measured on 60,000 trades: less than half the time of pyarrow's defaults.
                use_dictionary=self._repeating,
                write_statistics=[batch_column(self.schema.names)],
            )
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(self.folder)
        return Staged(self.folder.name, name, rows.num_rows, path.stat().st_size, batch)

    def holds(self, version: int) -> bool:
        """Whether the commit under this transaction version is in the table."""
        last = self.table.transaction_version(self.application)
        return last is not None and last >= version

    def add(self, staged: Sequence[Staged], version: int) -> None:
        """Put staged files into the table, once, under a transaction version."""
        if self.holds(version):
            return
        self.table.create_write_transaction(
            [_action(self.folder, item, batch_column(self.schema.names)) for item in staged],
            "append",
            self._delta_schema,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(self.application, version)]
            ),
            post_commithook_properties=NO_HOOKS,
        )
        self.table.update_incremental()
        self._sync_log()

    def append(self, rows: pa.Table, batch: int, name: str, version: int | None = None) -> None:
        """Stage and add in one go, under the batch's number unless a version is given."""
        version = batch if version is None else version
        if not self.holds(version):
            self.add([self.stage(name, rows, batch)], version)

    def shorten(self) -> None:
        """Between batches: a log checkpoint and a fresh handle keep commits quick."""
        if self.table.version() - self._opened_at >= COMMITS_PER_HANDLE:
            self.table.create_checkpoint()
            self.reopen()

    def reopen(self) -> None:
        self.table = DeltaTable(str(self.folder))
        self._opened_at = self.table.version()

    def _sync_log(self) -> None:
        """delta-rs does not fsync: a promise is kept on disk, not in a cache."""
        log = self.folder / "_delta_log"
        sync(log / f"{self.table.version():020}.json")
        sync(log)


File = tuple[str, int | None, int | None]
# Opening a table costs many times what following it does: readers of a process share handles.
_followed: dict[str, tuple[DeltaTable, int, list[File]]] = {}
_following = threading.Lock()


def read_files(folder: Path) -> list[File]:
    """The live files of a table now, with the lowest and highest batch in each, if known."""
    name = str(folder)
    with _following:
        known = _followed.get(name)
        try:
            table = known[0] if known else DeltaTable(name)
            if known:
                table.update_incremental()
        except (TableNotFoundError, DeltaError, OSError):
            _followed.pop(name, None)
            return _first_look(folder)
        if known is None or known[1] != table.version():
            _followed[name] = (table, table.version(), files_of(table, folder))
        return _followed[name][2]


def _first_look(folder: Path) -> list[File]:
    try:
        table = DeltaTable(str(folder))
    except TableNotFoundError:
        return []
    files = files_of(table, folder)
    _followed[str(folder)] = (table, table.version(), files)
    return files


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


def _open_or_create(folder: Path, schema: pa.Schema) -> DeltaTable:
    _refuse_empty_log(folder)
    try:
        return DeltaTable(str(folder))
    except TableNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
    except DeltaError as error:
        raise OperationError(
            f"COMMIT_CORRUPT: the log of {folder} cannot be read: {error}. Restore this table from "
            "a backup; 'tapeline audit --full' then says whether it is whole."
        ) from None
    configuration = {
        "delta.logRetentionDuration": "interval 1 hours",
        "delta.deletedFileRetentionDuration": "interval 1 hours",
    }
    configuration["delta.dataSkippingStatsColumns"] = batch_column(schema.names)
    return DeltaTable.create(
        str(folder), DeltaSchema.from_arrow(schema), mode="ignore", configuration=configuration
    )


def _refuse_empty_log(folder: Path) -> None:
    """Delta takes a commit of no bytes for one without changes: rows would be gone, silently."""
    log = folder / "_delta_log"
    for entry in sorted(log.glob("*.json"))[-2:] if log.is_dir() else []:
        if entry.stat().st_size == 0:
            raise OperationError(
                f"COMMIT_EMPTY: {entry} has no bytes, as a power cut leaves it. Remove that file "
                "if it is the last one: the flow then finishes the batch, or says what is missing."
            )


def batch_column(names: Sequence[str]) -> str:
    """The column that files are pruned by: the batch that wrote a row."""
    return next(name for name in ("_batch", "batch", "part") if name in names)


def _action(folder: Path, staged: Staged, column: str) -> AddAction:
    stats: dict[str, Any] = {"numRecords": staged.rows}
    if column != "part":
        bounds = {column: staged.batch}
        stats |= {"minValues": bounds, "maxValues": bounds, "nullCount": {column: 0}}
    modified = int((folder / staged.name).stat().st_mtime * 1000)
    return AddAction(staged.name, staged.size, {}, modified, True, json.dumps(stats))
