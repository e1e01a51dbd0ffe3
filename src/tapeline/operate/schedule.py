"""Aligned ticks: never overlapping, a missed one waits for the next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Ticks:
    """Moments that are whole multiples of an interval since 1970, in UTC."""

    every: timedelta
    next: datetime
    overruns: int = 0

    @classmethod
    def starting(cls, every: timedelta, now: datetime) -> Ticks:
        return cls(every, after(now, every))

    def due(self, now: datetime) -> bool:
        return now >= self.next

    def done(self, now: datetime) -> None:
        """The work of a tick has ended; ticks that passed during it are overruns."""
        following = after(now, self.every)
        self.overruns += max(0, round((following - self.next) / self.every) - 1)
        self.next = following


def after(now: datetime, every: timedelta) -> datetime:
    """The first tick after a moment."""
    return BEGINNING + ((now - BEGINNING) // every + 1) * every
