"""The supervisor retries what failed, waits longer each time, and stops after a limit.

An incident begins with the first failure of a part (the flow, an intake, a sink) and ends when
that part works again. A notification is sent when it begins, when retrying stops, and when it
ends. Libraries for retries wrap one call; this is a state that a status shows, and parts share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tapeline.errors import OperationError, TapelineError, in_words
from tapeline.settings import SuperviseSettings

MOST_DOUBLINGS = 30


@dataclass
class Incident:
    """A part that is failing."""

    part: str
    since: datetime
    error: TapelineError
    attempts: int = 1
    retry_at: float = 0.0
    given_up: bool = False

    def facts(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "since": self.since.isoformat(),
            "attempts": self.attempts,
            "error": str(self.error),
            "given_up": self.given_up,
        }


def back_off(attempts: int, most_seconds: float) -> float:
    """How long to wait after so many failed attempts: twice as long each time, up to a limit."""
    doublings = min(attempts - 1, MOST_DOUBLINGS)  # a float overflows after a thousand
    return min(most_seconds, 2.0**doublings)


class Supervisor:
    """Decides when to retry a failed part."""

    def __init__(
        self,
        pipeline: str,
        settings: SuperviseSettings,
        tell: Callable[[dict[str, Any]], None],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._say = tell
        self._clock = clock
        self._monotonic = monotonic
        self.incidents: dict[str, Incident] = {}
        self.retries = 0  # of any part, since the start

    def may_try(self, part: str) -> bool:
        """Whether to try a part now: always if it works, never after retrying has stopped."""
        incident = self.incidents.get(part)
        return incident is None or (
            not incident.given_up and self._monotonic() >= incident.retry_at
        )

    def failed(
        self, part: str, error: Exception, where: str = "", forever: bool = False
    ) -> Incident:
        """Note a failure: wait longer each time, and stop retrying after the limit, if any."""
        known = self.incidents.get(part)
        said = error if isinstance(error, TapelineError) else OperationError(
            f"{part} failed: {in_words(error)}"
        )  # fmt: skip
        if where:
            said = type(said)(f"{said} ({where})")
        incident = known or Incident(part, self._clock(), said)
        if known is None:
            self.incidents[part] = incident
            self._tell(incident, "began")
        else:
            incident.attempts += 1
            incident.error = said
            self.retries += 1
        wait = back_off(incident.attempts, self._settings.max_wait_seconds)
        incident.retry_at = self._monotonic() + wait
        limit = None if forever else self._settings.attempts
        if limit is not None and incident.attempts >= limit and not incident.given_up:
            incident.given_up = True
            self._tell(incident, "given_up")
        return incident

    def works(self, part: str) -> None:
        """Note a success: an open incident of this part ends."""
        incident = self.incidents.pop(part, None)
        if incident is not None:
            self.retries += 1
            self._tell(incident, "over")

    def failure(self, part: str) -> TapelineError | None:
        incident = self.incidents.get(part)
        return incident.error if incident else None

    def _tell(self, incident: Incident, what: str) -> None:
        self._say(
            {
                "pipeline": self._pipeline,
                "event": what,
                "at": self._clock().isoformat(),
                **incident.facts(),
            }
        )
