"""The way back: an earlier generation that was written by the very code that is in the file now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tapeline.books.commit import Commit
from tapeline.books.commits import read_commits
from tapeline.books.layout import Layout
from tapeline.books.table_id import Kind, TableId
from tapeline.plan import Plan
from tapeline.store.files import is_there


@dataclass(frozen=True)
class WayBack:
    """The generation of each step that goes on, and the first batch that it lacks."""

    generations: dict[str, int]
    first: int


def find_way_back(
    layout: Layout,
    plan: Plan,
    last: Commit,
    fingerprints: Mapping[str, str],
    built: Sequence[str],
) -> WayBack | None:
    """Earlier generations of all steps that have to be built, which ended at the same batch."""
    found: dict[str, int] = {}
    ends: set[int] = set()
    for name in built:
        earlier = _earlier(layout, last, name, _upstream(plan, name, fingerprints))
        if earlier is None:
            return None
        found[name], end = earlier
        ends.add(end)
    return WayBack(found, ends.pop()) if len(ends) == 1 else None


def _upstream(plan: Plan, name: str, fingerprints: Mapping[str, str]) -> dict[str, str]:
    """The fingerprints of a step and of the tables that its records come through."""
    steps = {**plan.pipeline.tables, **plan.pipeline.summaries}
    found = {}
    while name in steps:
        found[name] = fingerprints[name]
        name = steps[name].stream
    return found


def _earlier(
    layout: Layout, last: Commit, name: str, meaning: Mapping[str, str]
) -> tuple[int, int] | None:
    """The last generation of a step that had this meaning, and the batch that ended it."""
    stood = last.stood(name)
    for one, following in reversed(list(pairwise(stood))):
        if not one.generation or not _stored(layout, name, one.generation):
            continue
        before = following.since - 1
        rows = read_commits(layout.commits, before, before)
        commit = next((row.commit for row in rows if row.decides), Commit())
        if all(commit.fingerprints.get(step) == made for step, made in meaning.items()):
            return one.generation, following.since
    return None


def _stored(layout: Layout, name: str, generation: int) -> bool:
    kinds = (Kind.REGISTER, Kind.JOURNAL)
    return any(is_there(layout.table(TableId(kind, name, generation))) for kind in kinds)
