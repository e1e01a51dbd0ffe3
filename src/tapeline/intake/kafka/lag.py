"""The lag of the books, partition by partition."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class PartitionLag:
    """Messages that are not in the books, and the age of the oldest."""

    records: int
    seconds: float


class Lag:
    """What was taken and is not in the books, and what was not taken. Several threads ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: deque[Mapping[str, Any]] = deque()
        self._left: dict[str, int] = {}
        self._stood: dict[str, tuple[int, datetime]] = {}  # where a partition stands, since when

    def take(self, part: Mapping[str, Any]) -> None:
        """A part of a piece is published."""
        with self._lock:
            if not self._taken or part["delivery"] > self._taken[-1]["delivery"]:
                self._taken.append(part)

    def leave(self, left: Mapping[str, tuple[int, int]], now: datetime) -> None:
        """So many messages of each partition are still in the topics, from such an offset on."""
        with self._lock:
            self._left = {name: count for name, (count, _) in left.items()}
            for name, (_, offset) in left.items():
                if self._stood.get(name, (None, now))[0] != offset:
                    self._stood[name] = (offset, now)

    def partitions(self, booked: int, now: datetime) -> dict[str, PartitionLag]:
        """The lag of each partition, with deliveries up to `booked` in the books."""
        with self._lock:
            while self._taken and self._taken[0]["delivery"] <= booked:
                self._taken.popleft()
            records = dict(self._left)
            oldest = {
                name: self._stood[name][1].timestamp() for name, left in records.items() if left
            }
            for part in self._taken:
                name = part["name"]
                records[name] = records.get(name, 0) + part["records"]
                if part.get("sent_ms") is not None:
                    sent = part["sent_ms"] / 1000
                    oldest[name] = min(oldest.get(name, sent), sent)
        ages = {name: max(0.0, now.timestamp() - sent) for name, sent in oldest.items()}
        return {
            name: PartitionLag(count, round(ages.get(name, 0.0), 3) if count else 0.0)
            for name, count in sorted(records.items())
        }
