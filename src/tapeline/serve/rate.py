"""A request rate limit per address."""

from __future__ import annotations

import time
from collections import OrderedDict

MOST_ADDRESSES = 10_000


class Rate:
    """A token bucket per address, refilled over a minute."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, address: str, now: float | None = None) -> bool:
        """Whether an address may send a request now. Takes one from its bucket."""
        now = time.monotonic() if now is None else now
        left = self._filled(address, now)
        self._left.pop(address, None)
        self._left[address] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1

    def spent(self, address: str, now: float | None = None) -> bool:
        """Whether the bucket of an address is empty. Takes nothing."""
        return self._filled(address, time.monotonic() if now is None else now) < 1

    def _filled(self, address: str, now: float) -> float:
        left, since = self._left.get(address, (self._most, now))
        return min(self._most, left + (now - since) * self._most / 60)
