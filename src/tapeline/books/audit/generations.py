"""Commits rows as the audit compares them with tables that were built again when code changed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tapeline.books.audit.checks import Check, equal
from tapeline.books.audit.scan import AuditScan
from tapeline.books.builds import builds, folder_of
from tapeline.books.commit import Commit, Counts
from tapeline.books.commits import CommitRow, read_commits
from tapeline.books.reader import ReadPoint
from tapeline.books.table_id import Kind, TableId
from tapeline.store.duckdb import register_table

BuiltRows = dict[int, list[CommitRow]]  # by the generation that was built


def last_switch(cut: ReadPoint) -> int:
    """The batch that last let another generation stand."""
    return max((one[-1].since for one in cut.commit.generations.values()), default=0)


def rows_of_builds(look: AuditScan) -> BuiltRows:
    """The rows of every build that stands or stood."""
    layout, standing = look.books.layout, look.cut.commit.generation
    numbers = [one.generation for one in builds(layout) if one.generation <= standing]
    return {one: read_commits(folder_of(layout, one) / "commits") for one in numbers}


def with_builds(look: AuditScan, built: BuiltRows) -> dict[int, Commit]:
    """The rows of all batches, each with what builds say of the tables that stand now."""
    told: dict[int, list[Commit]] = {}
    for row in (row for rows in built.values() for row in rows if row.decides):
        told.setdefault(row.batch, []).append(row.commit)
    standing = look.cut.commit
    return {b: _joined(row, told.get(b, []), standing) for b, row in look.commits.items()}


def _joined(commit: Commit, built: list[Commit], standing: Commit) -> Commit:
    """A row of the books, with the counts of the generations that stand today."""
    tables: dict[str, Counts] = {}
    for row in (*built, commit):
        tables |= {
            name: counts
            for name, counts in row.tables.items()
            if row.generation_of(name) == standing.generation_of(name)
        }
    files = [*commit.files, *(file for row in built for file in row.files)]
    return commit.model_copy(update={"tables": tables, "files": files})


def check_earlier(look: AuditScan) -> Iterator[Check]:
    """The rows of generations that stand no more are those that their commits rows proved.

    Rows after their last batch are those of a way back that was not finished: nobody reads them.
    """
    for name, stood in sorted(look.cut.commit.generations.items()):
        ends = {one.generation: after.since - 1 for one, after in pairwise(stood)}
        for generation in sorted({*ends} - {stood[-1].generation, 0}):
            for kind in (Kind.REGISTER, Kind.JOURNAL, Kind.LINKS):
                table = TableId(kind, name, generation)
                folder = look.books.layout.table(table)
                if register_table(look.connection, "written", folder, look.range):
                    look.connection.execute(
                        "create or replace temp view earlier as "
                        f"select * from written where _batch <= {ends[generation]}"
                    )
                    yield look.proved("earlier", table, f"{table.path} (earlier)")


def check_builds(look: AuditScan, built: BuiltRows) -> Iterator[Check]:
    """Each build ends with the row that the books' own row names."""
    said = {
        commit.generation: commit.applied.built
        for commit in look.commits.values()
        if commit.applied is not None
    }
    for generation, rows in built.items():
        decided = [row for row in rows if row.decides]
        wrong = bool(decided) and decided[-1].hash != said.get(generation)
        what = f"generation {generation}: ends as its commits row says"
        yield equal(what, decided[-1].batch if wrong else None)
