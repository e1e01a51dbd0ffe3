"""The generations of some books, for people: what each changed, since when, and its size."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tapeline.books.builds import Build, builds, last_decision
from tapeline.books.commit import Commit
from tapeline.books.commits import read_commits
from tapeline.books.layout import Layout
from tapeline.books.table_id import Kind, TableId
from tapeline.store.files import each_file, is_there

BUILDING, STANDING, EARLIER = "being built", "standing", "earlier"


def listed_generations(layout: Layout) -> list[dict[str, Any]]:
    """Every generation, from the first on."""
    last = last_decision(layout)
    if last is None:
        return []
    commit = last.commit
    first = {"generation": 1, "who": "", "steps": {}, **_began(layout, 1)}
    found = [first | {"bytes": _first_bytes(layout, commit)}]
    for build in builds(layout):
        began = _began(layout, _since(commit, build))
        size = _bytes(layout, [(name, build.generation) for name in build.built])
        found.append(
            {"generation": build.generation, "who": build.who, "steps": build.steps, **began,
             "bytes": size}
        )  # fmt: skip
    for row in found:
        number = row["generation"]
        other = BUILDING if number > commit.generation else EARLIER
        row["state"] = STANDING if number == commit.generation else other
    return found


def _since(commit: Commit, build: Build) -> int:
    """The batch from which on a build stood; 0 while it does not."""
    if build.generation > commit.generation:
        return 0
    stood = (one for name in build.steps for one in commit.stood(name))
    numbers = {*map(build.number_of, build.built), 0}  # 0 of a build that only retires steps
    return max((one.since for one in stood if one.generation in numbers and one.since), default=0)


def _began(layout: Layout, batch: int) -> dict[str, Any]:
    at: datetime | None = None
    if batch:
        rows = read_commits(layout.commits, batch, batch)
        at = next((row.at for row in rows if row.publishes), None)
    return {"batch": batch or None, "at": at}


def _first_bytes(layout: Layout, commit: Commit) -> int:
    names = {*commit.fingerprints, *commit.generations}
    return _bytes(layout, [(name, 1) for name in names])


def _bytes(layout: Layout, tables: list[tuple[str, int]]) -> int:
    sizes: list[int] = []

    def see(_: Path, size: int) -> None:
        sizes.append(size)

    for name, generation in tables:
        for kind in Kind:
            folder = layout.table(TableId(kind, name, generation))
            if is_there(folder):
                each_file(folder, see)
    return sum(sizes)
