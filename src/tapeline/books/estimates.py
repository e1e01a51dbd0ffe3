"""What a change costs, about: how many records are read again, for how long, into how much room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tapeline.books.builds import last_decision
from tapeline.books.code import described_code
from tapeline.books.commit import Commit
from tapeline.books.commits import read_commits
from tapeline.books.layout import Layout
from tapeline.books.table_id import Kind, TableId
from tapeline.plan import Plan
from tapeline.plan.changes import RETIRED, Known, StepChange, compare
from tapeline.store.files import each_file, is_there

LATEST = 200  # batches whose times tell how long a record takes


def noticed_changes(plan: Plan, layout: Layout) -> list[StepChange] | None:
    """What was edited since the books were made, without Spark; None when there are none."""
    last = last_decision(layout)
    if last is None:
        return None
    known = Known(last.commit.fingerprints, described_code(layout, last.commit))
    return estimated(layout, plan, compare(plan, known))


def estimated(layout: Layout, plan: Plan, changes: Sequence[StepChange]) -> list[StepChange]:
    """Changes, each with its cost."""
    last = last_decision(layout)
    if last is None:
        return list(changes)
    pace = _milliseconds_per_record(layout, last.batch)
    found = []
    for one in changes:
        records = 0 if one.change == RETIRED else _records(plan, last.commit, one.name)
        size = 0 if one.change == RETIRED else _bytes(layout, last.commit, one.name)
        seconds = round(records * pace / 1000, 1)
        found.append(replace(one, records=records, seconds=seconds, bytes=size))
    return found


def _records(plan: Plan, commit: Commit, name: str) -> int:
    """The records that a step reads when it is built."""
    steps = {step.name: step for step in (*plan.tables, *plan.summaries)}
    stream = steps[name].stream
    if stream in plan.pipeline.tables:
        return commit.total(stream).verdicts.get("kept", 0)
    same = [t.name for t in plan.tables if t.stream == stream]
    return max((sum(commit.total(one).verdicts.values()) for one in same), default=0)


def _bytes(layout: Layout, commit: Commit, name: str) -> int:
    """What the generation takes that stands now."""
    sizes: list[int] = []

    def see(_: Path, size: int) -> None:
        sizes.append(size)

    for kind in Kind:
        folder = layout.table(TableId(kind, name, commit.generation_of(name)))
        if is_there(folder):
            each_file(folder, see)
    return sum(sizes)


def _milliseconds_per_record(layout: Layout, batch: int) -> float:
    rows = read_commits(layout.commits, max(1, batch - LATEST), batch)
    commits = [row.commit for row in rows if row.decides and row.commit.records]
    records = sum(commit.records for commit in commits)
    return sum(commit.milliseconds or 0 for commit in commits) / records if records else 0.0
