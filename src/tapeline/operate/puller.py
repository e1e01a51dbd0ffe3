"""The collector: asks outside systems for what is new and fills the drop folders, without Spark."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from random import Random

from tapeline.books.commits import restored_epoch
from tapeline.books.layout import Layout
from tapeline.books.pulls import PullsStatus, PullStatus
from tapeline.books.status import IncidentStatus, write_status
from tapeline.connect.pulling import LaterError, reader_of
from tapeline.declare import Pull
from tapeline.errors import DeclarationError, TapelineError
from tapeline.intake.handover import Handover
from tapeline.intake.pull import ActivePull
from tapeline.operate.log import PULL_LOG, Log
from tapeline.operate.notify import Notifier
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.store.disk import hold, release
from tapeline.store.files import make_folder
from tapeline.supervisor import Supervisor

JITTER = 0.5  # of a wait, by lot, so that many who wait do not all come at once
LONGEST_SLEEP_SECONDS = 0.2

Say = Callable[[str], None]


class Puller:
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
        self._log = Log(self._layout.log, settings.log, _now, PULL_LOG)
        self._resources.callback(self._log.close)
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
        self._log.say("started", pulls=",".join(chore.pull.name for chore in self.chores))
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

    def status(self) -> list[PullStatus]:
        """How every pull stands."""
        return [
            chore.status().model_copy(
                update={"next_at": self._next_at(chore), "incident": self._incident(chore)}
            )
            for chore in self.chores
        ]

    def close(self) -> None:
        self._write(running=False)
        self._log.say("stopped")
        self._resources.close()

    def __enter__(self) -> Puller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, pull: Pull, plan: Plan, settings: Settings, opened: ExitStack) -> ActivePull:
        source = plan.pipeline.sources[pull.into]
        path = self._layout.pull(pull.name)
        make_folder(path.parent)
        lock = hold(path.with_name(f".lock.{pull.name}"), f"the pull '{pull.name}'")
        opened.callback(release, lock)
        drop, epoch = settings.within(source.connector.path), restored_epoch(self._layout.home)
        handover = Handover(path, drop, pull.system.asks, epoch)
        reader = reader_of(pull.name, pull.system, settings)
        opened.callback(reader.close)
        return ActivePull(pull, reader, handover)

    def _active(self, once: bool) -> list[ActivePull]:
        """The pulls to continue: not stopped after failures, and not done if run once."""
        return [
            chore
            for chore in self.chores
            if not self._has_given_up(chore) and not (once and self._is_done(chore))
        ]

    def _is_due(self, chore: ActivePull) -> bool:
        due = self._monotonic() >= max(chore.due, self._retry_at(chore))
        return due and not self._stopped.is_set()

    def _rest_seconds(self, active: list[ActivePull]) -> float:
        """Seconds until the next one is due; short, so that a signal is noticed soon."""
        due = min(max(chore.due, self._retry_at(chore)) for chore in active)
        return min(max(due - self._monotonic(), 0.0), LONGEST_SLEEP_SECONDS)

    def _retry_at(self, chore: ActivePull) -> float:
        incident = self._supervisor.incidents.get(chore.pull.name)
        return incident.retry_at if incident else 0.0

    def _turn(self, chore: ActivePull) -> None:
        name, before = chore.pull.name, chore.records
        try:
            again = chore.step(_now())
        except (TapelineError, OSError) as error:
            self._failed(chore, error)
            return
        if name in self._supervisor.incidents:
            self._say(f"pull '{name}' works again.")
            self._log.say("works_again", pull=name)
        self._supervisor.works(name)
        if chore.records > before:
            self._log.say(
                "pulled", pull=name, records=chore.records - before, position=chore.position
            )
        chore.due = self._monotonic() + (self._every_seconds if again is None else again)

    def _failed(self, chore: ActivePull, error: TapelineError | OSError) -> None:
        """Wait longer each time, at least as long as the system asks for, plus random jitter."""
        chore.caught_up = False
        chore.failures += 1
        later = isinstance(error, LaterError | OSError)
        incident = self._supervisor.failed(chore.pull.name, error, forever=later)
        wait = incident.retry_at - self._monotonic()
        wait = max(wait * (1 + JITTER * self._chance.random()), getattr(error, "after_seconds", 0))
        incident.retry_at = self._monotonic() + wait
        name, attempts = chore.pull.name, incident.attempts
        if incident.given_up:
            self._say(f"{incident.error} Stopped retrying after {attempts} attempts.")
            self._log.say("given_up", pull=name, attempts=attempts, error=incident.error)
        else:
            self._say(f"{incident.error} Attempt {attempts}; next attempt in {wait:.1f} s.")
            self._log.say("failed", pull=name, attempts=attempts, next_seconds=round(wait, 1),
                          error=incident.error)  # fmt: skip

    def _is_done(self, chore: ActivePull) -> bool:
        """Once: all has come, or it cannot go on."""
        incident = self._supervisor.incidents.get(chore.pull.name)
        if incident is None:
            return chore.caught_up or chore.full
        return not isinstance(incident.error, LaterError) or incident.attempts >= self._attempts

    def _has_given_up(self, chore: ActivePull) -> bool:
        incident = self._supervisor.incidents.get(chore.pull.name)
        return incident is not None and incident.given_up

    def _next_at(self, chore: ActivePull) -> str | None:
        """When it is tried next; never, when it is given up."""
        if self._has_given_up(chore):
            return None
        seconds = max(chore.due, self._retry_at(chore)) - self._monotonic()
        return (_now() + timedelta(seconds=max(seconds, 0.0))).isoformat()

    def _incident(self, chore: ActivePull) -> IncidentStatus | None:
        incident = self._supervisor.incidents.get(chore.pull.name)
        return IncidentStatus.of(incident) if incident else None

    def _write(self, running: bool) -> None:
        at = _now().isoformat()
        status = PullsStatus(pid=os.getpid(), running=running, at=at, pulls=self.status())
        write_status(self._layout.pull_status, status)


def _now() -> datetime:
    return datetime.now(UTC)
