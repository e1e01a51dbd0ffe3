"""What a run reports: its status file, its log and its notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tapeline.books import Layout
from tapeline.books.alerts import EngineAlert
from tapeline.books.status import Pause
from tapeline.books.status_file import StatusFile
from tapeline.books.stuck import failed_again
from tapeline.errors import TapelineError, in_words
from tapeline.operate.log import Log
from tapeline.operate.notify import Notifier
from tapeline.settings import Settings


class RunLog:
    """Status file, log and notifications of a run, with one method per event."""

    def __init__(self, layout: Layout, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._notifier = Notifier(settings.notify)
        self.status = StatusFile(layout.status, clock())
        said = settings.log.folder
        self.log = Log(settings.within(said) if said else layout.log, settings.log, clock)

    def started(self, pipeline: str, batch: int) -> None:
        self.log.say("started", pipeline=pipeline, batch=batch)

    def note(self, published: Any) -> None:
        """A batch was published."""
        self.status.note(published)
        self.log.say(
            "published",
            batch=published.batch,
            records=published.records,
            milliseconds=round(published.seconds * 1000),
        )

    @contextmanager
    def noting_failure(self, flow: Any) -> Iterator[None]:
        """Note a failed batch in the status."""
        status = self.status
        try:
            yield
        except Exception as error:
            batch = flow.published_batch + 1
            status.stuck = failed_again(
                status.stuck, batch, flow.next_ranges, in_words(error), self._clock()
            )
            raise

    def note_pause(self, pause: Pause | None) -> None:
        """Note whether the flow is paused; log each change once."""
        if (pause is None) != (self.status.paused is None):
            self.log.say("paused" if pause else "resumed", **(pause.as_dict() if pause else {}))
        self.status.paused = pause

    def tell(self, message: dict[str, Any]) -> None:
        """Log an incident and send a notification."""
        facts = {k: v for k, v in message.items() if k not in ("event", "at", "pipeline")}
        self.log.say(f"incident_{message['event']}", **facts)
        self._notifier.tell(message)

    def tell_alert(self, pipeline: str, event: str, alert: EngineAlert) -> None:
        """Log an alert that was raised or closed, and send a notification."""
        facts = alert.as_dict()
        self.log.say(f"alert_{event}", **{k: facts[k] for k in ("alert", "key", "about")})
        at = self._clock().isoformat()
        self._notifier.tell({"pipeline": pipeline, "event": event, "at": at, **facts})

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
