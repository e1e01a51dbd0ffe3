"""References: stored as versioned tables and pinned per batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from tapeline.books.layout import Layout
from tapeline.books.schemas import with_columns
from tapeline.errors import OperationError
from tapeline.plan import Plan
from tapeline.store.delta import TableWriter
from tapeline.store.duckdb import arrow_of
from tapeline.store.files import stamp

VERSION = "_batch"  # named so that readers prune files by it as in every other table


class References:
    """The rows of every reference that the next batch will see."""

    def __init__(self, plan: Plan, layout: Layout, project: Path) -> None:
        self._plan = plan
        self._layout = layout
        self._project = project
        self._seen: dict[str, tuple[int, int]] = {}
        self.rows: dict[str, pa.Table] = {}
        self.versions: dict[str, int] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Read the files that changed; True when a version rose."""
        changed = False
        for name, reference in self._plan.pipeline.references.items():
            path = self._project / reference.connector.path
            try:
                found = stamp(path)
            except OSError as error:
                raise OperationError(
                    f"reference '{name}': {path} cannot be read: {error.strerror}. Put the file "
                    "there."
                ) from None
            if self._seen.get(name) == found:
                continue
            self._seen[name] = found
            changed |= self._store(name, reference.connector.snapshot(self._project))
        return changed

    def _store(self, name: str, rows: pa.Table) -> bool:
        """Keep the rows as a version, unless they are the last one's."""
        folder = self._layout.reference(name)
        stored = latest_version(folder)
        version = stored[0] if stored else 0
        if stored is None or not stored[1].equals(rows):
            version += 1
            schema = with_columns(rows.schema, [(VERSION, pa.int64())])
            marked = rows.append_column(VERSION, pa.array([version] * rows.num_rows, pa.int64()))
            book = TableWriter(folder, schema, f"reference/{name}")
            book.append(marked, version, f"{version:012}")
        risen = self.versions.get(name) != version
        self.rows[name], self.versions[name] = rows, version
        return risen


def latest_version(folder: Path) -> tuple[int, pa.Table] | None:
    """The number and rows of a reference's newest version."""
    rows = arrow_of(folder, "*", "true")
    if not rows.num_rows:
        return None
    newest = max(rows[VERSION].to_pylist())
    mask = pa.array([value == newest for value in rows[VERSION].to_pylist()])
    return newest, rows.filter(mask).drop_columns([VERSION]).combine_chunks()


def version_rows(folder: Path, version: int) -> pa.Table | None:
    """The rows of a stored version of a reference, if it is there."""
    rows = arrow_of(folder, "*", f"{VERSION} = {int(version)}")
    return rows.drop_columns([VERSION]).combine_chunks() if rows.num_rows else None


def rows_by_name(plan: Plan, project: Path) -> Mapping[str, pa.Table]:
    """The references as their files stand, for checks that store nothing."""
    return {
        name: reference.connector.snapshot(project)
        for name, reference in plan.pipeline.references.items()
    }
