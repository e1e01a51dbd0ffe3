"""The index of keys: which batches may hold a version of a key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tapeline.errors import OperationError
from tapeline.words import counted

Hashes = npt.NDArray[np.int64]


class KeyIndex:
    """Sorted runs of (hash, batch), merged so that there are few."""

    def __init__(self, limit: int) -> None:
        self._runs: list[tuple[Hashes, Hashes]] = []
        self._limit = limit

    def __len__(self) -> int:
        return sum(len(hashes) for hashes, _ in self._runs)

    def add(self, hashes: Hashes, batches: Hashes) -> None:
        if len(self) + len(hashes) > self._limit:
            raise OperationError(
                f"the identity index is full: {counted(self._limit, 'key')}. Raise "
                "flow.identity_keys (16 bytes of memory per key)."
            )
        self._runs.append(_sorted(hashes, batches))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            (h1, b1), (h2, b2) = self._runs[-2:]
            self._runs[-2:] = [_sorted(np.concatenate([h1, h2]), np.concatenate([b1, b2]))]

    def find(self, hashes: Hashes) -> tuple[Hashes, Hashes]:
        """Which of these hashes are known, as (places in `hashes`, batches), repeats included."""
        places, batches = [], []
        for known, of in self._runs:
            low = np.searchsorted(known, hashes, side="left")
            high = np.searchsorted(known, hashes, side="right")
            for place in np.flatnonzero(high > low):
                for hit in range(low[place], high[place]):
                    places.append(place)
                    batches.append(of[hit])
        return np.array(places, dtype=np.int64), np.array(batches, dtype=np.int64)


def _sorted(hashes: Hashes, batches: Hashes) -> tuple[Hashes, Hashes]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order], batches[order]
