"""The ledger: the tables of a flow and the commits that decide them, as one transaction.

Stage, decide, finish, publish. Whoever opens it first finishes what is decided. It knows neither
Spark nor what the rows mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tapeline.books import Book, Commits, Decision, Staged
from tapeline.books.proof import hash_of
from tapeline.errors import OperationError
from tapeline.run.failpoints import reach

# Of this shape are the books that this version writes. It reads all shapes up to it.
SHAPE = 1


class Ledger:
    """The writer's side of a pipeline's books, without its tapes."""

    def __init__(
        self,
        home: Path,
        pipeline: str,
        schemas: Mapping[str, pa.Schema],
        fingerprints: Mapping[str, str],
        pool: Executor,
        now: datetime,
    ) -> None:
        """`schemas` are those of the tables, by their folders below home."""
        self._pool = pool
        self.commits = Commits(home / "commits")
        self._fingerprints = dict(fingerprints)
        if self.commits.last is not None:
            self._refuse_newer(self.commits.last)
            self._refuse_changed_code(self.commits.last)
        self.books = {
            name: Book(home / name, schema, f"{pipeline}/{name}")
            for name, schema in schemas.items()
        }
        self._finish_decided(now)

    def stage(self, table: str, rows: pa.Table, batch: int) -> Staged:
        """Write an output as a Parquet file, fsynced, not yet in any table."""
        found = self.books[table].stage(f"batch-{batch:012}", rows, batch)
        return Staged(table, found.name, found.rows, found.size, batch, hash_of(rows))

    def decide(self, body: dict[str, Any], now: datetime) -> Decision:
        """The one write that makes a batch real: its input range and its output files."""
        return self.commits.decide(body | {"shape": SHAPE, "fingerprints": self._fingerprints}, now)

    def finish(self, decision: Decision) -> None:
        """Add the staged files to their tables; doing it again changes nothing."""

        def add(item: tuple[str, list[Staged]]) -> None:
            self.books[item[0]].add(item[1], decision.version)
            reach("added")

        list(self._pool.map(add, decision.staged.items()))

    def publish(self, decision: Decision, now: datetime) -> datetime:
        """Let readers see a finished batch."""
        return self.commits.publish(decision, now)

    def shorten(self) -> None:
        """Between batches: keep commits quick."""
        list(self._pool.map(Book.shorten, (*self.books.values(), self.commits.book)))

    def _refuse_newer(self, last: Decision) -> None:
        shape = last.body.get("shape", SHAPE)
        if shape > SHAPE:
            raise OperationError(
                f"STATE_VERSION: {self.commits.book.folder.parent} was written by a newer Tapeline "
                f"(shape {shape}; this one knows {SHAPE}). Nothing was touched: install that "
                "version again."
            )

    def _refuse_changed_code(self, last: Decision) -> None:
        """A journal belongs to one fingerprint of its function."""
        before = last.body["fingerprints"]
        changed = [n for n, f in self._fingerprints.items() if before.get(n) != f]
        if changed:
            raise OperationError(
                f"the code of {', '.join(changed)} changed since batch {last.batch}, "
                "or was not there: the books so far do not hold what it makes of them. Go back to "
                "that code, or start new books in another root (setting 'root')."
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
            book = self.books[table]
            if book.holds(decision.version):
                continue
            if not all((book.folder / one.name).exists() for one in staged):
                raise OperationError(
                    f"TABLE_BEHIND: {book.folder} lacks batch {decision.batch}, which was "
                    "published, and its file is gone. Restore this table from a backup."
                )
            book.add(staged, decision.version)
