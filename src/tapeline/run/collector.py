"""The collector: asks outside systems for what is new and fills the drop folders, without Spark."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any

from tapeline.books.commits import restored_epoch
from tapeline.books.layout import Layout
from tapeline.connect.pulling import LaterError, Reader, reader_of
from tapeline.declare import Pull
from tapeline.errors import DeclarationError, TapelineError
from tapeline.plan import Plan
from tapeline.run.failpoints import reach
from tapeline.run.handover import Handover
from tapeline.run.intake.disk import hold
from tapeline.run.supervisor import Supervisor
from tapeline.settings import Settings
from tapeline.watch.notify import Notifier

FILES_AHEAD = 1_000  # with so many files in the drop folder nothing more is fetched
AHEAD_SECONDS = 1.0
JITTER = 0.5  # of a wait, by lot, so that many who wait do not all come at once
LONGEST_SLEEP_SECONDS = 0.2

Say = Callable[[str], None]


@dataclass
class Chore:
    """One pull at work: who reads, where it goes, and when it is due."""

    pull: Pull
    reader: Reader
    handover: Handover
    due: float = 0.0
    caught_up: bool = False
    asked_at: datetime | None = None
    behind: int | None = None
    records: int = 0
    files: int = 0
    full: bool = False

    def step(self) -> float | None:
        """Fetch one page and hand it over; how soon to ask again, None when all has come."""
        self.handover.finish()
        self.full = self.handover.files_ahead(FILES_AHEAD) >= FILES_AHEAD
        if self.full:
            return AHEAD_SECONDS
        page = self.reader.page(self.handover.stands.position)
        reach("pull_fetched")
        self.handover.deliver(page.lines, page.position)
        self.records += len(page.lines)
        self.files += bool(page.lines)
        self.behind = page.behind
        self.caught_up = page.again_seconds is None
        return page.again_seconds

    def facts(self) -> dict[str, Any]:
        stands = self.handover.stands
        position = stands.position or {}
        return {
            "pull": self.pull.name,
            "into": self.pull.into,
            "asks": self.pull.system.asks,
            "position": position.get("cursor", position.get("after")),
            "caught_up": self.caught_up,
            "lag_records": 0 if self.caught_up else self.behind,
            "drop_folder_full": self.full,
            "records": self.records,
            "files": self.files,
            "records_ever": stands.records,
            "files_ever": stands.files,
            "asked_at": self.asked_at and self.asked_at.isoformat(),
        }


class Collector:
    """The pulls of one pipeline, in turn, one page each. Holds their locks until it is closed."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        every: timedelta,
        say: Say,
        monotonic: Callable[[], float] = time.monotonic,
        chance: Random | None = None,
    ) -> None:
        if not plan.pipeline.pulls:
            raise DeclarationError(
                f"pipeline '{plan.name}' declares no pull. Add pipeline.pull(name, HttpPull(...) "
                "or PostgresPull(...), into=source)."
            )
        self._every_seconds = every.total_seconds()
        self._say = say
        self._monotonic = monotonic
        self._chance = chance or Random()
        self._layout = Layout(settings.home(plan.name))
        self._stopped = threading.Event()
        self._resources = ExitStack()
        self._notifier = Notifier(settings.notify)
        self._resources.callback(self._notifier.close)
        self._attempts = settings.supervise.attempts
        self._supervisor = Supervisor(
            plan.name, settings.supervise, self._notifier.tell, _now, monotonic
        )
        with ExitStack() as opened:
            self.chores = [
                self._open(pull, plan, settings, opened) for pull in plan.pipeline.pulls.values()
            ]
            self._resources.push(opened.pop_all())

    def run(self, once: bool = False) -> None:
        """Pull until stopped; once: until every system has given what it has, or fails."""
        self._write(running=True)
        while not self._stopped.is_set() and (active := self._active(once)):
            for chore in active:
                if self._is_due(chore):
                    self._turn(chore)
                    self._write(running=True)
            self._stopped.wait(self._rest_seconds(active))

    def stop(self) -> None:
        """End after the page at hand."""
        self._stopped.set()

    @property
    def failure(self) -> TapelineError | None:
        """What stands in the way of a pull, if anything does."""
        found = (self._supervisor.failure(chore.pull.name) for chore in self.chores)
        return next((error for error in found if error), None)

    def facts(self) -> list[dict[str, Any]]:
        """How every pull stands."""
        return [{**chore.facts(), "incident": self._incident(chore)} for chore in self.chores]

    def close(self) -> None:
        self._write(running=False)
        self._resources.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, pull: Pull, plan: Plan, settings: Settings, opened: ExitStack) -> Chore:
        source = plan.pipeline.sources[pull.into]
        path = self._layout.pull(pull.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = hold(path.with_name(f".lock.{pull.name}"), f"the pull '{pull.name}'")
        opened.callback(os.close, lock)
        drop, epoch = settings.within(source.connector.path), restored_epoch(self._layout.home)
        handover = Handover(path, drop, pull.system.asks, epoch)
        reader = reader_of(pull.name, pull.system, settings)
        opened.callback(reader.close)
        return Chore(pull, reader, handover)

    def _active(self, once: bool) -> list[Chore]:
        """The pulls that are neither given up nor, once, done."""
        return [
            chore
            for chore in self.chores
            if not self._has_given_up(chore) and not (once and self._is_done(chore))
        ]

    def _is_due(self, chore: Chore) -> bool:
        due = self._monotonic() >= max(chore.due, self._retry_at(chore))
        return due and not self._stopped.is_set()

    def _rest_seconds(self, active: list[Chore]) -> float:
        """Until the next one is due; never long, so that a signal is noticed soon."""
        due = min(max(chore.due, self._retry_at(chore)) for chore in active)
        return min(max(due - self._monotonic(), 0.0), LONGEST_SLEEP_SECONDS)

    def _retry_at(self, chore: Chore) -> float:
        incident = self._supervisor.incidents.get(chore.pull.name)
        return incident.retry_at if incident else 0.0

    def _turn(self, chore: Chore) -> None:
        name = chore.pull.name
        chore.asked_at = _now()
        try:
            again = chore.step()
        except (TapelineError, OSError) as error:
            self._failed(chore, error)
            return
        if name in self._supervisor.incidents:
            self._say(f"pull '{name}' works again.")
        self._supervisor.works(name)
        chore.due = self._monotonic() + (self._every_seconds if again is None else again)

    def _failed(self, chore: Chore, error: TapelineError | OSError) -> None:
        """Wait longer each time, as long as the system asks for, and a little more by lot."""
        chore.caught_up = False
        later = isinstance(error, LaterError | OSError)
        incident = self._supervisor.failed(chore.pull.name, error, forever=later)
        wait = incident.retry_at - self._monotonic()
        wait = max(wait * (1 + JITTER * self._chance.random()), getattr(error, "after_seconds", 0))
        incident.retry_at = self._monotonic() + wait
        if incident.given_up:
            self._say(f"{incident.error} It is given up after {incident.attempts} attempts.")
        else:
            self._say(f"{incident.error} Attempt {incident.attempts}; the next in {wait:.1f} s.")

    def _is_done(self, chore: Chore) -> bool:
        """Once: all has come, or it cannot go on."""
        incident = self._supervisor.incidents.get(chore.pull.name)
        if incident is None:
            return chore.caught_up or chore.full
        return not isinstance(incident.error, LaterError) or incident.attempts >= self._attempts

    def _has_given_up(self, chore: Chore) -> bool:
        incident = self._supervisor.incidents.get(chore.pull.name)
        return incident is not None and incident.given_up

    def _incident(self, chore: Chore) -> dict[str, Any] | None:
        incident = self._supervisor.incidents.get(chore.pull.name)
        return incident.facts() if incident else None

    def _write(self, running: bool) -> None:
        facts = {
            "pid": os.getpid(),
            "running": running,
            "at": _now().isoformat(),
            "pulls": self.facts(),
        }
        path = self._layout.pull_status
        partial = path.with_suffix(f".{os.getpid()}")
        # What it says of itself must not end it, on a full disk for instance.
        with suppress(OSError):
            partial.write_text(json.dumps(facts))
            partial.replace(path)


def _now() -> datetime:
    return datetime.now(UTC)
