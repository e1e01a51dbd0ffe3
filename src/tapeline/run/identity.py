"""Identity: the same record counts once, however often and however late it comes.

A disposable index in memory, from the 64-bit hash of a key to the batch that kept it, proves that
a key is new. A possible hit is verified in that batch's rows, by the key itself, so neither a hash
collision nor a compaction can make it wrong. It takes a dozen bytes per key and is rebuilt from
the register when the flow starts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.query import arrow_of, connect, register_table
from tapeline.errors import OperationError

Hashes = npt.NDArray[np.int64]
# Repeats mostly come soon: the latest records are verified without opening a file.
RECENT_KEYS = 50_000
KEPT, DUPLICATE, CONFLICT = 0, 1, 2


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
                f"the identity index is full: {self._limit:,} keys. Raise flow.identity_keys "
                "(16 bytes of memory per key)."
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


@dataclass(frozen=True)
class Records:
    """The records of a batch that passed every rule, in tape order."""

    keys: pa.ChunkedArray | pa.Array
    hashes: Hashes
    contents: pa.ChunkedArray | pa.Array


class Identity:
    """What a keyed table knows of its keys."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._index = KeyIndex(limit)
        self._recent: deque[tuple[int, dict[int, tuple[str, bytes]]]] = deque()
        stored = arrow_of(folder, "_key_hash, _batch", "_verdict = 'kept' and _row = 0")
        if stored.num_rows:
            self._index.add(_numbers(stored["_key_hash"]), _numbers(stored["_batch"]))

    def __len__(self) -> int:
        return len(self._index)

    def judge(self, records: Records) -> npt.NDArray[np.int8]:
        """A verdict for every record. Only possible repeats are looked at one by one."""
        verdicts = np.full(len(records.hashes), KEPT, dtype=np.int8)
        known, batches = self._index.find(records.hashes)
        _, first, counts = np.unique(records.hashes, return_index=True, return_counts=True)
        repeated = np.isin(records.hashes, records.hashes[first[counts > 1]])
        repeated[known] = True
        suspects = np.flatnonzero(repeated)
        if not len(suspects):
            return verdicts
        standing = self._stored(records.hashes[known], batches)
        keys = records.keys.take(pa.array(suspects)).to_pylist()
        contents = records.contents.take(pa.array(suspects)).to_pylist()
        for place, key, content in zip(suspects, keys, contents, strict=True):
            if key not in standing:
                standing[key] = content
            else:
                verdicts[place] = DUPLICATE if standing[key] == content else CONFLICT
        return verdicts

    def remember(self, batch: int, records: Records, kept: npt.NDArray[np.bool_]) -> None:
        """The batch is decided: its keys are taken."""
        hashes = records.hashes[kept]
        self._index.add(hashes, np.full(len(hashes), batch, dtype=np.int64))
        chosen = pa.array(np.flatnonzero(kept)[-RECENT_KEYS:])
        keys = records.keys.take(chosen).to_pylist()
        contents = records.contents.take(chosen).to_pylist()
        of_batch = zip(
            hashes[-RECENT_KEYS:].tolist(), zip(keys, contents, strict=True), strict=True
        )
        self._recent.append((batch, dict(of_batch)))
        while sum(len(d) for _, d in self._recent) > RECENT_KEYS and len(self._recent) > 1:
            self._recent.popleft()

    def _stored(self, hashes: Hashes, batches: Hashes) -> dict[str, bytes]:
        """Key and content of the records kept under these hashes in these batches."""
        found: dict[str, bytes] = {}
        recent = dict(self._recent)
        elsewhere: list[tuple[int, int]] = []
        for value, batch in zip(hashes.tolist(), batches.tolist(), strict=True):
            pair = recent.get(batch, {}).get(value)
            if pair is not None:
                found[pair[0]] = pair[1]
            else:
                elsewhere.append((value, batch))
        return found | self._read(elsewhere) if elsewhere else found

    def _read(self, wanted: list[tuple[int, int]]) -> dict[str, bytes]:
        wanted_rows = pa.table(
            {"h": [h for h, _ in wanted], "b": [b for _, b in wanted]},
            schema=pa.schema([("h", pa.int64()), ("b", pa.int64())]),
        )
        found: dict[str, bytes] = {}
        with connect() as connection:
            connection.register("wanted", wanted_rows)
            for batch in sorted({b for _, b in wanted}):
                register_table(connection, "register", self._folder, (batch, batch))
                query = (
                    "select distinct _key, _content_hash from register semi join wanted "
                    "on _key_hash = h and _batch = b where _verdict = 'kept' and _row = 0 "
                    f"and _batch = {int(batch)}"
                )
                found.update(connection.execute(query).fetchall())
        return found


def _sorted(hashes: Hashes, batches: Hashes) -> tuple[Hashes, Hashes]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order], batches[order]


def _numbers(column: pa.ChunkedArray) -> Hashes:
    numbers: Hashes = pc.cast(column, pa.int64()).to_numpy()
    return numbers
