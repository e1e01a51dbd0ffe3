"""How many records a batch may hold: a limit that follows the time a batch should take."""

from __future__ import annotations

FLOOR_RECORDS = 1_000
# At most so much larger or smaller from one batch to the next: one slow batch may be an accident.
STEP = 2.0
NEAR = 0.1  # this close to the target nothing changes


class BatchSize:
    """The limit in force, between a floor and the hard limit. Without a target it stays there."""

    def __init__(self, most_records: int, target_seconds: float) -> None:
        self._most = most_records
        self._floor = min(FLOOR_RECORDS, most_records)
        self._target_seconds = target_seconds
        self.records = most_records

    def note(self, records: int, seconds: float) -> None:
        """Note how long a batch of this many records took."""
        if not self._target_seconds or not records:
            return  # there is no target to follow
        factor = min(STEP, max(1 / STEP, self._target_seconds / max(seconds, 1e-6)))
        if abs(factor - 1) < NEAR or (factor > 1 and records < self.records / 2):
            return  # a quick batch of a few records says nothing of a full one
        self.records = max(self._floor, min(self._most, round(self.records * factor)))
