"""References that live elsewhere: read at the start, and again in the background.

A batch never waits for an outside system. What was read lies ready until the flow takes it between
two batches; while reading fails, batches go on with the last version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime

import pyarrow as pa

from tapeline.books.layout import Layout
from tapeline.books.reference_ages import ReferenceAge, read_ages, write_ages
from tapeline.declare import Reference
from tapeline.declare.duration import parse_duration
from tapeline.errors import OperationError, TapelineError
from tapeline.settings import Settings

RETRY_SECONDS = 30.0  # after the first failure; doubled after each further one
LONGEST_WAIT_SECONDS = 3_600.0


class OutsideReferences:
    """Reads each reference at its age; keeps what came until the flow takes it."""

    def __init__(
        self,
        references: Mapping[str, Reference],
        layout: Layout,
        settings: Settings,
        clock: Callable[[], datetime],
    ) -> None:
        self._references = references
        self._layout = layout
        self._settings = settings
        self._clock = clock
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._fresh: dict[str, pa.Table] = {}
        known = {age.reference: age for age in read_ages(layout)}
        self._ages = {
            name: known.get(name, ReferenceAge()).model_copy(
                update={
                    "reference": name,
                    "reads": one.connector.path,
                    "every_seconds": parse_duration(one.connector.every).total_seconds(),
                }
            )
            for name, one in references.items()
        }
        self._again_at: dict[str, float] = {}  # seconds of the clock, after a failure

    def at_start(self, name: str, stored: pa.Table | None) -> pa.Table:
        """The rows to begin with: read now if it is time, otherwise those of the last version."""
        if stored is not None and not self._ages[name].is_due(self._clock()):
            return stored
        error = self._read(name)
        rows = self._fresh.pop(name, stored)
        if rows is None:
            raise OperationError(
                f"{error} The pipeline needs this reference to start, and has no earlier version. "
                "Correct what the message names, then start again."
            )
        return rows

    def take(self) -> dict[str, pa.Table]:
        """What has been read since the last time."""
        with self._changing:
            fresh, self._fresh = self._fresh, {}
        return fresh

    def follow(self) -> None:
        """Read again in the background until `close`."""
        if self._references and self._thread is None:
            self._thread = threading.Thread(target=self._go_on, name="references", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            # A read in progress ends by its own time limit; its rows are not needed any more.
            self._thread.join(timeout=1.0)

    def _go_on(self) -> None:
        while not self._stopping.wait(self._pause()):
            now = self._clock()
            for name, age in list(self._ages.items()):
                waits = self._again_at.get(name, 0.0) > now.timestamp()
                if age.is_due(now) and not waits and not self._stopping.is_set():
                    self._read(name)

    def _pause(self) -> float:
        """Seconds until the next reference is due."""
        now = self._clock()
        soonest = LONGEST_WAIT_SECONDS
        for name, age in self._ages.items():
            left = age.every_seconds - (age.age_seconds(now) or 0.0) if age.read_at else 0.0
            retry = self._again_at.get(name, 0.0) - now.timestamp()
            soonest = min(soonest, max(left, retry))
        return max(soonest, 0.05)

    def _read(self, name: str) -> str:
        """Read one reference and note how it went; the error, in words, if it failed."""
        connector = self._references[name].connector
        try:
            rows: pa.Table = connector.read(name, self._settings)
        except (TapelineError, OSError, ValueError, pa.ArrowException) as error:
            return self._failed(name, str(error), getattr(error, "after_seconds", 0.0))
        with self._changing:
            self._fresh[name] = rows
        self._again_at.pop(name, None)
        good = {"read_at": self._clock().isoformat(), "rows": rows.num_rows, "failures": 0}
        self._note(name, {**good, "failing_since": None, "error": None})
        return ""

    def _failed(self, name: str, error: str, after_seconds: float) -> str:
        age, now = self._ages[name], self._clock()
        wait = min(RETRY_SECONDS * 2**age.failures, age.every_seconds, LONGEST_WAIT_SECONDS)
        self._again_at[name] = now.timestamp() + max(wait, after_seconds)
        since = age.failing_since or now.isoformat()
        failing = {"failures": age.failures + 1, "failing_since": since, "error": error}
        self._note(name, failing)
        return error

    def _note(self, name: str, facts: Mapping[str, object]) -> None:
        with self._changing:
            self._ages[name] = self._ages[name].model_copy(update=dict(facts))
            write_ages(self._layout, list(self._ages.values()))
