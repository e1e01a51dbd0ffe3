"""A cache of answers: many clients that ask the same get one computed answer."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

# Overhead of an entry besides its key and answer, so that many small entries count too.
ENTRY_BYTES = 1_000
CHARACTER_BYTES = 4  # at most


class ResponseCache:
    """A cache with a limit in bytes, keys included.

    A second request for an answer that is being computed waits for that computation.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._computing: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], bytes]) -> bytes:
        """The answer for a key. The key has everything the answer depends on, also the batch."""
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
                finally:  # also after an error: no lock is left
                    with self._lock:
                        self._computing.pop(key, None)
        return found

    def _keep(self, key: Hashable, answer: bytes) -> None:
        with self._lock:
            self._forget(key)
            self._kept[key] = answer
            self._bytes += _cost(key, answer)
            while self._bytes > self._most_bytes and len(self._kept) > 1:
                self._forget(next(iter(self._kept)))

    def _forget(self, key: Hashable) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._bytes -= _cost(key, gone)


def _cost(key: Hashable, answer: bytes) -> int:
    return len(answer) + CHARACTER_BYTES * len(repr(key)) + ENTRY_BYTES
