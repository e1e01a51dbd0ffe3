"""How fast a lag shrinks."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

RECENT = timedelta(seconds=60)


class CatchUp:
    """Follows one lag, and says when it will be gone if it goes on as it recently did."""

    def __init__(self) -> None:
        self._seen: deque[tuple[datetime, int]] = deque()

    def seconds(self, records: int, now: datetime) -> float | None:
        """0 without a lag; None while it does not shrink, or is not known long enough."""
        if not records:
            self._seen.clear()
            return 0.0
        self._seen.append((now, records))
        while now - self._seen[0][0] > RECENT:
            self._seen.popleft()
        since, before = self._seen[0]
        worked_off = before - records
        passed = (now - since).total_seconds()
        return round(records * passed / worked_off, 1) if worked_off > 0 and passed > 0 else None
