"""Answers that many clients ask for at once are computed once, and kept while they are true."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


class Answers:
    """A bounded cache. What is asked for while it is computed waits for that one computation."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._computing: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], bytes]) -> bytes:
        """The answer under a key; the key holds everything it depends on, the batch included."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
            alone = self._computing.setdefault(key, threading.Lock())
        with alone:
            with self._lock:
                found = self._kept.get(key)
            if found is None:
                try:
                    found = compute()
                    self._keep(key, found)
                finally:  # a question that is refused leaves nothing behind
                    with self._lock:
                        self._computing.pop(key, None)
        return found

    def _keep(self, key: Hashable, answer: bytes) -> None:
        with self._lock:
            self._kept[key] = answer
            self._bytes += len(answer)
            while self._bytes > self._most_bytes and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= len(gone)
