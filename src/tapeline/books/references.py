"""References: stored as versioned tables and pinned per batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tapeline.books.layout import Layout
from tapeline.books.outside_references import OutsideReferences
from tapeline.books.schemas import with_columns
from tapeline.declare import Reference
from tapeline.errors import OperationError
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.store.delta import TableWriter
from tapeline.store.duckdb import arrow_of
from tapeline.store.files import stamp

VERSION = "_batch"  # named so that readers prune files by it as in every other table


class References:
    """The rows of every reference that the next batch will see."""

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        settings: Settings,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._layout = layout
        self._project = settings.project
        self._files = {n: r for n, r in plan.pipeline.references.items() if not _is_outside(r)}
        outside = {n: r for n, r in plan.pipeline.references.items() if _is_outside(r)}
        self._outside = OutsideReferences(outside, layout, settings, clock)
        self._seen: dict[str, tuple[int, int]] = {}
        self.rows: dict[str, pa.Table] = {}
        self.versions: dict[str, int] = {}
        for name in outside:
            stored = self._stored(name)
            self._store(name, self._outside.at_start(name, stored and stored[1]))
        self.refresh()

    def follow(self) -> None:
        """Read references from outside in the background, each at its age."""
        self._outside.follow()

    def close(self) -> None:
        self._outside.close()

    def refresh(self) -> bool:
        """Take the files that changed and what came from outside; True when a version rose."""
        changed = False
        for name, rows in self._outside.take().items():
            changed |= self._store(name, rows)
        for name, reference in self._files.items():
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

    def _stored(self, name: str) -> tuple[int, pa.Table] | None:
        """The version that batches use; at the start the newest one of the books."""
        if name in self.versions:
            return self.versions[name], self.rows[name]
        return latest_version(self._layout.reference(name))

    def _store(self, name: str, rows: pa.Table) -> bool:
        """Keep the rows as a version, unless they are the last one's."""
        stored = self._stored(name)
        version = stored[0] if stored else 0
        if stored is None or not _same(stored[1], rows):
            version += 1
            schema = with_columns(rows.schema, [(VERSION, pa.int64())])
            marked = rows.append_column(VERSION, pa.array([version] * rows.num_rows, pa.int64()))
            book = TableWriter(self._layout.reference(name), schema, f"reference/{name}")
            book.append(marked, version, f"{version:012}")
        risen = self.versions.get(name) != version
        self.rows[name], self.versions[name] = rows, version
        return risen


def latest_version(folder: Path) -> tuple[int, pa.Table] | None:
    """The number and rows of a reference's newest version."""
    newest = arrow_of(folder, f"max({VERSION}) as newest", "true").to_pylist()
    if not newest or newest[0]["newest"] is None:
        return None
    version = int(newest[0]["newest"])
    rows = arrow_of(folder, "*", f"{VERSION} = {version}")
    return version, rows.drop_columns([VERSION]).combine_chunks()


def version_rows(folder: Path, version: int) -> pa.Table | None:
    """The rows of a stored version of a reference, if it is there."""
    rows = arrow_of(folder, "*", f"{VERSION} = {int(version)}")
    return rows.drop_columns([VERSION]).combine_chunks() if rows.num_rows else None


def _same(stored: pa.Table, rows: pa.Table) -> bool:
    """Whether two versions have the same rows; how a store spells a type does not matter."""
    if [(f.name, _kind(f.type)) for f in stored.schema] != [
        (f.name, _kind(f.type)) for f in rows.schema
    ]:
        return False
    return bool(stored.cast(rows.schema).combine_chunks().equals(rows.combine_chunks()))


def _kind(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp(kind.unit, "UTC")
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return pa.string() if any(test(kind) for test in text) else kind


def _is_outside(reference: Reference) -> bool:
    """Whether a reference lives elsewhere and is read again at an age."""
    return hasattr(reference.connector, "every")


def rows_by_name(
    plan: Plan, project: Path, settings: Settings | None = None
) -> Mapping[str, pa.Table]:
    """The references as they are now, for checks that store nothing.

    Those of outside systems are read only with settings, which say where they are.
    """
    found: dict[str, pa.Table] = {}
    for name, reference in plan.pipeline.references.items():
        if not _is_outside(reference):
            found[name] = reference.connector.snapshot(project)
        elif settings is not None:
            found[name] = reference.connector.read(name, settings)
    return found
