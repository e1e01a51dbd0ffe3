"""The ledger: the tables of a flow and the commits that decide them, as one transaction.

Stage, decide, finish, publish. Whoever opens it first finishes what is decided. It knows neither
Spark nor what the rows mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from tapeline.books import Commits, Decision, StagedFile, TableWriter
from tapeline.books.commit import Commit
from tapeline.books.commits import restored_epoch
from tapeline.books.meanings import Code, check_code
from tapeline.books.row_hash import hash_of
from tapeline.books.table_id import TableId
from tapeline.errors import OperationError
from tapeline.store.decisions import DecidedTables

# Of this shape are the books that this version writes. It reads all shapes up to it.
SHAPE = 1


@dataclass(frozen=True)
class LedgerPlace:
    """Which books, and where their commits are; those of a build are in a folder of its own."""

    home: Path
    pipeline: str
    build: Path | None = None
    first: int = 1  # the first batch that these commits tell of
    any_code: bool = False  # of a change: the books were made by the code before it

    @property
    def commits(self) -> Path:
        return (self.build or self.home) / "commits"


class Ledger:
    """The writer's side of a pipeline's books, without its tapes."""

    def __init__(
        self,
        place: LedgerPlace,
        schemas: Mapping[TableId, pa.Schema],
        code: Code,
        pool: Executor,
        now: datetime,
    ) -> None:
        self._pool = pool
        self.commits = Commits(place.commits, place.first)
        # What a build adds to a table comes after what the books added before, in their epoch.
        self.commits.epoch = max(self.commits.epoch, restored_epoch(place.home))
        self._code = code
        if self.commits.last is not None:
            self._refuse_newer(self.commits.last)
            if not place.any_code:
                check_code(place.home, self.commits.last, code, schemas)
        self.books = {
            table: TableWriter(place.home / table.path, schema, f"{place.pipeline}/{table.path}")
            for table, schema in schemas.items()
        }
        by_path = {table.path: book for table, book in self.books.items()}
        self._decided = DecidedTables(by_path, "added", pool)
        self._finish_decided(now)

    def stage(self, table: TableId, rows: pa.Table, batch: int) -> StagedFile:
        """Write an output as a Parquet file, fsynced, not yet in any table."""
        found = self.books[table].stage(f"batch-{batch:012}", rows, batch)
        return found.model_copy(update={"table": table.path, "hash": hash_of(rows)})

    def decide(self, commit: Commit, now: datetime) -> Decision:
        """The one write that makes a batch real: its input range and its output files."""
        made = commit.made_by(SHAPE, self._code.fingerprints, self._code.described)
        return self.commits.decide(made, now)

    def finish(self, decision: Decision) -> None:
        """Add the staged files to their tables; doing it again changes nothing."""
        self._decided.finish(decision.version, decision.staged)

    def publish(self, decision: Decision, now: datetime) -> datetime:
        """Let readers see a finished batch."""
        return self.commits.publish(decision, now)

    def shorten(self) -> None:
        """Between batches: keep commits quick."""
        list(self._pool.map(TableWriter.shorten, (*self.books.values(), self.commits.book)))

    def _refuse_newer(self, last: Decision) -> None:
        shape = last.commit.shape
        if shape is not None and shape > SHAPE:
            raise OperationError(
                f"STATE_VERSION: {self.commits.book.folder.parent} was written by a newer Tapeline "
                f"(format {shape}; this version supports {SHAPE}). Nothing was changed. Install "
                "that version again."
            )

    def _finish_decided(self, now: datetime) -> None:
        """Finish the last batch, if a crash or another program left it out of its tables."""
        if self.commits.last is not None:
            self.finish(self.commits.last)
        if self.commits.unfinished is not None:
            self.publish(self.commits.unfinished, now)
