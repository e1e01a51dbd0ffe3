"""Watches a run and raises the engine's own alerts: rejected and missing deliveries, lag, overruns.

It has a thread of its own, so that a batch that takes long does not delay an alert about it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from tapeline.books import Books
from tapeline.books.alerts import (
    Condition,
    EngineAlert,
    first_watched,
    lagging,
    missing,
    overrunning,
    read_alerts,
    reconcile,
    rejected,
    since_of,
    write_alerts,
)
from tapeline.books.deliveries import Delivery
from tapeline.books.status_file import StatusFile
from tapeline.errors import TapelineError
from tapeline.intake.deliveries import Deliveries
from tapeline.settings import Settings
from tapeline.store.files import stamp

LOOK_SECONDS = 2.0

Tell = Callable[[str, EngineAlert], None]
Arrivals = Callable[[], Mapping[str, datetime | None]]


class AlertWatch:
    """Looks now and then, and tells what begins and what ends."""

    def __init__(
        self,
        books: Books,
        settings: Settings,
        status: StatusFile,
        arrivals: Arrivals,
        tell: Tell,
        clock: Callable[[], datetime],
    ) -> None:
        self._books = books
        self._settings = settings
        self._status = status
        self._arrivals = arrivals
        self._tell = tell
        self._clock = clock
        self._deliveries = Deliveries(books, settings.project)
        self._known = read_alerts(books.layout.alerts)
        self._found: tuple[Any, list[Delivery]] = (None, [])
        self._turn = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        """Look every two seconds until stopped."""
        while not stop.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Raise what has begun and close what has ended."""
        with self._turn:
            now = self._clock()
            known = first_watched(self._known, self._books.plan.pipeline.sources, now)
            known, changed = reconcile(known, self._conditions(now), now)
            if known != self._known:
                write_alerts(self._books.layout.alerts, known)
                self._known = known
        for one in changed:
            self._tell("closed" if one.closed_at else "raised", one)

    @property
    def undecided(self) -> list[Delivery]:
        """Rejected deliveries at the last look."""
        return self._found[1]

    def _conditions(self, now: datetime) -> Iterator[Condition]:
        yield from rejected(self._rejected())
        arrived = {
            name: last or since_of(self._known, name) for name, last in self._arrivals().items()
        }
        yield from missing(self._books.plan.pipeline, arrived, now)
        yield from lagging(self._status.last, self._settings.notify.lag_seconds, now)
        yield from overrunning(self._status.tick, now)

    def _rejected(self) -> list[Delivery]:
        """Rejected deliveries; they are looked for again when something may have changed."""
        mark = list(self._marks())
        held = any(one.id is None for one in self._found[1])
        if mark != self._found[0] or held:
            try:
                self._found = mark, self._deliveries.undecided()
            except (TapelineError, OSError):  # the disk, or a table in this moment
                self._found = None, self._found[1]
        return self._found[1]

    def _marks(self) -> Iterator[Any]:
        """What changes when a file is rejected, held back, retried or dismissed."""
        for name, files in self._deliveries.rejected.items():
            yield [one.id for one in files.undecided()]
            try:
                yield stamp(self._books.layout.intake(name) / "findings.jsonl")
            except OSError:
                yield None
