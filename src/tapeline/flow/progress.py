"""What a flow says of the batches that it publishes, and of the one that is computed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

# The number of the batch for which this thread computes; whoever runs jobs can name them by it.
batch_at_work: ContextVar[int] = ContextVar("batch_at_work", default=0)


@dataclass(frozen=True)
class SourceProgress:
    """What a batch took from one source."""

    name: str
    first: int  # tape batches
    last: int
    latest: int  # the last one on the tape
    records: int


@dataclass(frozen=True)
class Published:
    """What one batch did."""

    batch: int
    at: datetime
    records: int
    seconds: float
    sources: tuple[SourceProgress, ...] = ()
    milliseconds: Mapping[str, int] = field(default_factory=dict)  # of read, compute, decide, ...


class RunListener(Protocol):
    """Somebody who is told what a run does."""

    def started(self) -> None: ...

    def published(self, published: Published) -> None: ...

    def ended(self, error: BaseException | None) -> None: ...


class Stopwatch:
    """How long the parts of a batch take, one after the other."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self.milliseconds: dict[str, int] = {}

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._started

    def lap(self, part: str) -> None:
        """A part ends here."""
        now = time.perf_counter()
        self.milliseconds[part] = round((now - self._last) * 1000)
        self._last = now
