"""Applying changed code: build beside what runs, then one row, with nobody else writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tapeline.books.builds import Build, abandon, last_decision, unfinished
from tapeline.books.estimates import estimated
from tapeline.books.layout import Layout
from tapeline.books.preview import Preview
from tapeline.books.quarantine import user
from tapeline.errors import OperationError
from tapeline.flow.change import Change, Signed
from tapeline.flow.rebuild import Progress
from tapeline.operate import control
from tapeline.plan import Plan
from tapeline.plan.changes import RETIRED, StepChange
from tapeline.settings import Settings
from tapeline.spark.compile import compiler
from tapeline.spark.queries import needs_of
from tapeline.spark.session import build_session
from tapeline.store.disk import hold, release
from tapeline.store.files import is_there
from tapeline.store.lock import WriterLock, holder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_SECONDS = 300.0
NOTHING = "The file and the books agree. There is nothing to apply."


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Applied:
    """What a change did."""

    changes: Sequence[StepChange] = ()
    generation: int | None = None
    batch: int | None = None  # of the row that decided
    stopped: bool = False  # a running pipeline was stopped for it

    def facts(self) -> dict[str, Any]:
        return {**vars(self), "changes": [one.facts() for one in self.changes]}


@dataclass(frozen=True)
class Watcher:
    """Who is asked and told while a change is applied."""

    agree: Callable[[Sequence[StepChange]], None] = lambda _: None  # raises to stop
    progress: Callable[[Progress], None] = lambda _: None
    told: Callable[[str], None] = field(default=lambda _: None)


def apply_change(
    plan: Plan,
    settings: Settings,
    signed: Signed,
    watcher: Watcher | None = None,
    session: SparkSession | None = None,
    back: bool = False,
) -> Applied:
    """Make the books those of the file's code; with `back`, only if an earlier generation was."""
    watcher = watcher or Watcher()
    with _changing(plan, settings, session) as (change, running):
        changes = estimated(change.layout, plan, change.changes)
        if not changes:
            return Applied()
        if back:
            _refuse_new_code(change, changes)
        watcher.agree(changes)
        build = _built(change, signed, watcher)
        return _switch(change, build, signed, (changes, running, watcher))


def preview_change(
    plan: Plan,
    settings: Settings,
    watcher: Watcher,
    days: int | None = None,
    session: SparkSession | None = None,
) -> Preview | None:
    """Build a change and say what it would move; None if the file and the books agree.

    What is built is kept: applying the change then only has to switch.
    """
    with _changing(plan, settings, session) as (change, _):
        changes = estimated(change.layout, plan, change.changes)
        if not changes:
            return None
        watcher.agree(changes)
        return change.preview(_built(change, Signed(user()), watcher), days)


@contextmanager
def _changing(
    plan: Plan, settings: Settings, session: SparkSession | None
) -> Iterator[tuple[Change, SparkSession]]:
    """One change of some books at a time."""
    layout = Layout(settings.home(plan.name))
    refuse_no_books(layout)
    lock = hold(layout.home / ".lock.build", "a change of these books")
    try:
        running = session or build_session(settings, plan.name, needs_of(plan))
        with Change(compiler(running, plan, settings), plan, settings, now) as change:
            yield change, running
    finally:
        release(lock)


def _refuse_new_code(change: Change, changes: Sequence[StepChange]) -> None:
    """A way back leads to code that the books have known."""
    changed = {one.name: one.change for one in changes}
    only_retired = all(one.change == RETIRED for one in changes)
    if not only_retired and change.way_back(changed) is None:
        raise OperationError(
            f"the code in the file has not written an earlier generation of {', '.join(changed)}. "
            "Put the earlier file back first, for example from version control, or apply this "
            "code with 'tapeline apply'."
        )


def _built(change: Change, signed: Signed, watcher: Watcher) -> Build:
    build = change.begin(signed)
    for progress in change.follow(build):
        watcher.progress(progress)
    return build


def _switch(
    change: Change, build: Build, signed: Signed, held: tuple[Sequence[StepChange], Any, Watcher]
) -> Applied:
    """Stop what runs, build the batches that came since, and decide."""
    changes, session, watcher = held
    stopped = holder(change.layout.home) is not None
    if stopped:
        watcher.told("Stopping the running pipeline after its current batch ...")
        control.stop(change.layout, STOP_SECONDS)
    books = WriterLock(change.layout.home)
    try:
        books.enter_jvm(session)
        change.finish()
        for progress in change.follow(build):
            watcher.progress(progress)
        decision = change.switch(build, signed)
    finally:
        books.release()
    return Applied(changes, build.generation, decision.batch, stopped)


def refuse_no_books(layout: Layout) -> None:
    if not is_there(layout.commits) or last_decision(layout) is None:
        raise OperationError(
            f"there are no books in {layout.home} to change. Run the pipeline first, or correct "
            "--root."
        )


def abandon_build(layout: Layout) -> Build | None:
    """Remove what was built and does not stand; None if there is nothing."""
    lock = hold(layout.home / ".lock.build", "a change of these books")
    try:
        found = unfinished(layout)
        if found is not None:
            abandon(layout, found)
        return found
    finally:
        release(lock)
