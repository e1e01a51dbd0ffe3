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
from tapeline.books.meanings import Code, check_code
from tapeline.books.row_hash import hash_of
from tapeline.books.table_id import TableId
from tapeline.errors import OperationError
from tapeline.failpoints import hit

# Of this shape are the books that this version writes. It reads all shapes up to it.
SHAPE = 1


@dataclass(frozen=True)
class LedgerPlace:
    """Which books, and where their commits are; those of a build are in a folder of its own."""

    home: Path
    pipeline: str
    build: Path | None = None
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
        self.commits = Commits(place.commits)
        self._code = code
        if self.commits.last is not None:
            self._refuse_newer(self.commits.last)
            if not place.any_code:
                check_code(place.home, self.commits.last, code, schemas)
        self.books = {
            table: TableWriter(place.home / table.path, schema, f"{place.pipeline}/{table.path}")
            for table, schema in schemas.items()
        }
        self._by_path = {table.path: book for table, book in self.books.items()}
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

        def add(item: tuple[str, list[StagedFile]]) -> None:
            self._by_path[item[0]].add(item[1], decision.version)
            hit("added")

        list(self._pool.map(add, decision.staged.items()))

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
        """Finish what is decided; what a published batch wrote must be in its tables."""
        decision = self.commits.unfinished
        if decision is not None:
            self.finish(decision)
            self.publish(decision, now)
        elif self.commits.last is not None:
            self._finish_lost(self.commits.last)

    def _finish_lost(self, decision: Decision) -> None:
        """A table that lost its last commit gets it again, if the file is still there."""
        for table, staged in decision.staged.items():
            book = self._by_path[table]
            if book.holds(decision.version):
                continue
            if not book.has_files(staged):
                raise OperationError(
                    f"TABLE_BEHIND: {book.folder} lacks the published batch {decision.batch}, and "
                    "its file is missing. Restore this table from a backup."
                )
            book.add(staged, decision.version)
