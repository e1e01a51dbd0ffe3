"""Decide, then finish: one commit of rows decides about files of other tables.

Files are staged first: durable, and in no table. One commit of rows in the deciding table names
them; from then on they count. Each table then gets its files under the decision's transaction
version, so finishing again changes nothing. Whoever opens the tables first finishes what is
decided and not in its table. The tape and the books are both written this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor

import pyarrow as pa

from tapeline.errors import OperationError
from tapeline.failpoints import hit
from tapeline.store.delta import StagedFile, TableWriter


def decide(
    table: TableWriter, rows: Iterable[tuple[int, pa.Table]], version: int, suffix: str = ""
) -> None:
    """Commit the rows that decide, each with its batch: all of them or none, and only once."""
    if not table.holds(version):
        staged = [table.stage(f"{batch:012}{suffix}", row, batch) for batch, row in rows]
        table.add(staged, version)


class DecidedTables:
    """Tables that get files by decisions only."""

    def __init__(
        self, tables: Mapping[str, TableWriter], crash_point: str, pool: Executor | None = None
    ) -> None:
        self._tables = tables
        self._crash_point = crash_point
        self._map = pool.map if pool else map

    def lack(self, version: int) -> bool:
        """Whether a table may lack what was decided under this version."""
        return not all(table.holds(version) for table in self._tables.values())

    def finish(self, version: int, files: Mapping[str, Sequence[StagedFile]]) -> None:
        """Add the files of a decision to their tables; doing it again changes nothing."""

        def add(name: str) -> None:
            self._add(self._tables[name], files[name], version)
            hit(self._crash_point)

        list(self._map(add, files))

    def _add(self, table: TableWriter, files: Sequence[StagedFile], version: int) -> None:
        if not table.holds(version) and not table.has_files(files):
            raise OperationError(
                f"TABLE_BEHIND: {table.folder} lacks batch {files[0].batch}, which is decided, and "
                "its file is missing. Restore this table from a backup."
            )
        table.add(files, version)
