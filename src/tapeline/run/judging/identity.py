"""Identity: the same record counts once, and of the versions of a record the highest stands.

A disposable index in memory, from the 64-bit hash of a key to the batches that hold a version of
it, proves that a key is new. A possible hit is verified in those batches' rows, by the key itself,
so neither a hash collision nor a compaction can make it wrong. It takes a dozen bytes per key and
is rebuilt from the register when the flow starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.query import arrow_of, connect, register_table
from tapeline.run.judging.keys import Hashes, KeyIndex

Flags = npt.NDArray[np.bool_]
# Repeats and corrections mostly come soon: the latest records are found without opening a file.
RECENT_KEYS = 250_000
KEPT, APPLIED, SUPERSEDED, DUPLICATE, CONFLICT = range(5)
VERDICTS = ("kept", "applied", "superseded")
STORED = "_verdict in ('kept', 'applied', 'superseded') and _row = 0"


@dataclass(frozen=True)
class Records:
    """The records of a batch that passed every rule, in tape order."""

    keys: pa.ChunkedArray | pa.Array
    hashes: Hashes
    contents: pa.ChunkedArray | pa.Array
    sequences: Hashes
    deletes: Flags
    positions: pa.ChunkedArray | pa.Array


@dataclass(frozen=True)
class Version:
    """One stored version of a record: its content, verdict and place."""

    sequence: int
    content: bytes
    verdict: str
    position: tuple[str, int, int]
    batch: int  # the one that gave it this verdict


@dataclass(frozen=True)
class Replaced:
    """A version that stood until this batch, and what took its place."""

    version: Version
    cause: str


@dataclass(frozen=True)
class Folded:
    """A verdict for every record, which of them change what stood, and what they replace."""

    verdicts: npt.NDArray[np.int8]
    changes: Flags
    replaced: list[Replaced]


class Identity:
    """What a keyed table knows of its keys."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._index = KeyIndex(limit)
        self._recent: deque[Recent] = deque()
        stored = arrow_of(folder, "distinct _key_hash, _batch", f"{STORED} and _sign > 0")
        if stored.num_rows:
            self._index.add(_numbers(stored["_key_hash"]), _numbers(stored["_batch"]))

    def __len__(self) -> int:
        return len(self._index)

    def judge(self, records: Records) -> Folded:
        """Fold the records into what stands. Only possible repeats are looked at one by one."""
        verdicts = np.where(records.deletes, APPLIED, KEPT).astype(np.int8)
        changes = records.deletes.copy()
        known, batches = self._index.find(records.hashes)
        _, first, counts = np.unique(records.hashes, return_index=True, return_counts=True)
        repeated = np.isin(records.hashes, records.hashes[first[counts > 1]])
        repeated[known] = True
        suspects = np.flatnonzero(repeated)
        if not len(suspects):
            return Folded(verdicts, changes, [])
        versions = self._stored(records.hashes[known], batches)
        standing = {key: max(found) for key, found in versions.items()}
        places = pa.array(suspects)
        came: dict[str, dict[int, int]] = {}
        for place, key, content in zip(
            suspects.tolist(),
            records.keys.take(places).to_pylist(),
            records.contents.take(places).to_pylist(),
            strict=True,
        ):
            sequence = int(records.sequences[place])
            same = versions.setdefault(key, {}).get(sequence)
            if same is not None:
                verdicts[place] = DUPLICATE if same.content == content else CONFLICT
                changes[place] = False
            else:
                versions[key][sequence] = Version(sequence, content, "", ("", 0, 0), 0)
                came.setdefault(key, {})[sequence] = place
        replaced = []
        for key, fresh in came.items():
            highest = max(versions[key])
            for sequence, place in fresh.items():
                if sequence != highest:
                    verdicts[place], changes[place] = SUPERSEDED, False
            if highest in fresh:
                changes[fresh[highest]] |= len(versions[key]) > 1
                if key in standing:
                    cause = "cancellation" if records.deletes[fresh[highest]] else "correction"
                    replaced.append(Replaced(versions[key][standing[key]], cause))
        return Folded(verdicts, changes, replaced)

    def remember(self, batch: int, records: Records, folded: Folded) -> None:
        """The batch is decided: its versions are stored."""
        chosen = np.flatnonzero(folded.verdicts <= SUPERSEDED)
        hashes = np.unique(records.hashes[chosen])
        self._index.add(hashes, np.full(len(hashes), batch, dtype=np.int64))
        # Of a large batch the last ones, as long as all versions of their keys are among them.
        head, tail = chosen[:-RECENT_KEYS], chosen[-RECENT_KEYS:]
        if len(head):
            tail = tail[~np.isin(records.hashes[tail], records.hashes[head])]
        self._recent.append(Recent.of(batch, records, folded, tail))
        while sum(len(one.hashes) for one in self._recent) > RECENT_KEYS and len(self._recent) > 1:
            self._recent.popleft()

    def _stored(self, hashes: Hashes, batches: Hashes) -> dict[str, dict[int, Version]]:
        """The versions stored under these hashes in these batches, by key and sequence."""
        recent = {one.batch: one for one in self._recent}
        elsewhere: list[tuple[int, int]] = []
        found: list[tuple[str, Version]] = []
        for value, batch in zip(hashes.tolist(), batches.tolist(), strict=True):
            versions = recent[batch].find(value) if batch in recent else []
            found += versions
            if not versions:
                elsewhere.append((value, batch))
        if elsewhere:
            found += self._read(elsewhere)
        by_key: dict[str, dict[int, Version]] = {}
        for key, version in found:
            by_key.setdefault(key, {})[version.sequence] = version
        return by_key

    def _read(self, wanted: list[tuple[int, int]]) -> Iterator[tuple[str, Version]]:
        wanted_rows = pa.table(
            {"h": [h for h, _ in wanted], "b": [b for _, b in wanted]},
            schema=pa.schema([("h", pa.int64()), ("b", pa.int64())]),
        )
        with connect() as connection:
            connection.register("wanted", wanted_rows)
            for batch in sorted({b for _, b in wanted}):
                register_table(connection, "register", self._folder, (batch, batch))
                query = (
                    "select _key, _sequence, _content_hash, _verdict, _position.source, "
                    "_position.part, _position.at, _batch from register semi join wanted "
                    f"on _key_hash = h and _batch = b where {STORED} and _sign > 0 "
                    f"and _batch = {int(batch)}"
                )
                for key, sequence, content, verdict, *place, number in connection.execute(
                    query
                ).fetchall():
                    yield key, Version(sequence, content, verdict, (*place,), number)


@dataclass(frozen=True)
class Recent:
    """The versions of one of the latest batches, ordered by the hash of their keys."""

    batch: int
    hashes: Hashes
    records: Records
    verdicts: npt.NDArray[np.int8]
    places: Hashes

    @classmethod
    def of(cls, batch: int, records: Records, folded: Folded, places: Hashes) -> Recent:
        ordered = places[np.argsort(records.hashes[places], kind="stable")]
        return cls(batch, records.hashes[ordered], records, folded.verdicts, ordered)

    def find(self, value: int) -> list[tuple[str, Version]]:
        low = int(np.searchsorted(self.hashes, value, side="left"))
        high = int(np.searchsorted(self.hashes, value, side="right"))
        return [self._version(int(place)) for place in self.places[low:high]]

    def _version(self, place: int) -> tuple[str, Version]:
        records = self.records
        where = records.positions[place].as_py()
        return records.keys[place].as_py(), Version(
            int(records.sequences[place]),
            records.contents[place].as_py(),
            VERDICTS[self.verdicts[place]],
            (where["source"], where["part"], where["at"]),
            self.batch,
        )


def _numbers(column: pa.ChunkedArray) -> Hashes:
    numbers: Hashes = pc.cast(column, pa.int64()).to_numpy()
    return numbers
