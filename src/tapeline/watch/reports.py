"""What a run reports: its status file, its log, and the messages to whom it may concern."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tapeline.books import Layout
from tapeline.errors import TapelineError
from tapeline.settings import Settings
from tapeline.watch.log import Log
from tapeline.watch.notify import Notifier
from tapeline.watch.status import StatusFile


class Reports:
    """The three ways a run is heard of, with one method per thing that happens."""

    def __init__(self, layout: Layout, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._notifier = Notifier(settings.notify)
        self.status = StatusFile(layout.status, clock())
        said = settings.log.folder
        self.log = Log(settings.within(said) if said else layout.log, settings.log, clock)

    def note(self, published: Any) -> None:
        """A batch was published."""
        self.status.note(published)
        self.log.say(
            "published",
            batch=published.batch,
            records=published.records,
            milliseconds=round(published.seconds * 1000),
        )

    def note_pause(self, facts: dict[str, Any] | None) -> None:
        """The flow is paused, or not; the change is logged once."""
        if (facts is None) != (self.status.paused is None):
            self.log.say("paused" if facts else "resumed", **(facts or {}))
        self.status.paused = facts

    def tell(self, message: dict[str, Any]) -> None:
        """An incident goes to the log, and to whom it may concern."""
        facts = {k: v for k, v in message.items() if k not in ("event", "at", "pipeline")}
        self.log.say(f"incident_{message['event']}", **facts)
        self._notifier.tell(message)

    def write(self, flow: Any, failure: TapelineError | None, running: bool) -> None:
        """Bring the status file up to date."""
        if self._notifier.problem:
            self.status.problems["notify"] = self._notifier.problem
        else:
            self.status.problems.pop("notify", None)
        self.status.write(flow, failure, running, self._clock())

    def close(self, batch: int) -> None:
        self._notifier.close()
        self.log.say("stopped", batch=batch)
        self.log.close()
