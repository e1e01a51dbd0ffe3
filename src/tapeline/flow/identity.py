"""What a keyed table knows of its keys: an index in memory, backed by the register.

The index is disposable. It leads from the 64-bit hash of a key to the batches that hold a version
of it, and proves that a key is new. A possible hit is verified in those batches' rows, by the key
itself, so neither a hash collision nor a compaction can make it wrong. It takes a dozen bytes per
key and is rebuilt from the register when the flow starts.
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

from tapeline.books.position import WHOLE, row_column
from tapeline.books.schemas import OF_VERSIONS, POSITION
from tapeline.flow.key_index import Hashes, KeyIndex
from tapeline.flow.key_verdicts import (
    KEY_STATES,
    NO_STATES,
    SUPERSEDED,
    KeyedRecords,
    KeyVerdicts,
)
from tapeline.store.duckdb import arrow_of, connect, register_table

# Repeats and corrections mostly come soon: the latest records are found without opening a file.
RECENT_KEYS = 250_000
STORED = f"_verdict in {OF_VERSIONS} and _row = 0 and _key is not null"


class Identity:
    """What a keyed table knows of its keys."""

    def __init__(self, folder: Path, limit: int, position: pa.StructType = POSITION) -> None:
        self._folder = folder
        self._row = row_column(position)
        self._index = KeyIndex(limit)
        self._recent: deque[RecentVersions] = deque()
        stored = arrow_of(folder, "distinct _key_hash, _batch", f"{STORED} and _sign > 0")
        if stored.num_rows:
            self._index.add(_numbers(stored["_key_hash"]), _numbers(stored["_batch"]))

    def __len__(self) -> int:
        return len(self._index)

    def states(self, hashes: Hashes) -> pa.Table:
        """The versions stored under these hashes of keys, in the order of their batches."""
        hashes = np.unique(hashes)
        known, batches = self._index.find(hashes)
        if not len(known):
            return NO_STATES
        found: list[pa.Table] = []
        wanted = hashes[known]
        elsewhere = np.ones(len(known), dtype=np.bool_)
        for recent in self._recent:
            here = np.flatnonzero(batches == recent.batch)
            if len(here):
                versions, there = recent.find(wanted[here])
                found.append(versions)
                elsewhere[here[there]] = False
        found += self._read(wanted[elsewhere], batches[elsewhere])
        return pa.concat_tables(found).sort_by("batch")

    def remember(self, batch: int, records: KeyedRecords, decided: KeyVerdicts) -> None:
        """The batch is decided: its versions are stored."""
        chosen = np.flatnonzero(decided.verdicts <= SUPERSEDED)
        hashes = np.unique(records.hashes[chosen])
        self._index.add(hashes, np.full(len(hashes), batch, dtype=np.int64))
        # Of a large batch the last ones, as long as all versions of their keys are among them.
        head, tail = chosen[:-RECENT_KEYS], chosen[-RECENT_KEYS:]
        if len(head):
            tail = tail[~np.isin(records.hashes[tail], records.hashes[head])]
        self._recent.append(RecentVersions.of(batch, records, decided, tail))
        while sum(len(one.hashes) for one in self._recent) > RECENT_KEYS and len(self._recent) > 1:
            self._recent.popleft()

    def _read(self, hashes: Hashes, batches: Hashes) -> Iterator[pa.Table]:
        """The versions of older batches, from the register."""
        if not len(hashes):
            return
        with connect() as connection:
            connection.register("wanted", pa.table({"h": hashes, "b": batches}))
            for batch in np.unique(batches).tolist():
                register_table(connection, "register", self._folder, (batch, batch))
                rows = connection.sql(
                    "select _key as key, _key_hash as key_hash, _sequence as sequence, "
                    "_content_hash as content, _verdict as verdict, _position.source as source, "
                    f"_position.part as part, _position.at as at, {self._row} as row, "
                    "_batch as batch from register r semi join wanted w "
                    f"on r._key_hash = w.h and r._batch = w.b where {STORED} and _sign > 0 "
                    f"and _batch = {int(batch)}"
                ).to_arrow_table()
                yield rows.select(KEY_STATES.names).cast(KEY_STATES)


@dataclass(frozen=True)
class RecentVersions:
    """The versions of one of the latest batches, ordered by the hash of their keys."""

    batch: int
    hashes: Hashes
    records: KeyedRecords
    verdicts: npt.NDArray[np.int8]
    places: Hashes

    @classmethod
    def of(
        cls, batch: int, records: KeyedRecords, decided: KeyVerdicts, places: Hashes
    ) -> RecentVersions:
        ordered = places[np.argsort(records.hashes[places], kind="stable")]
        return cls(batch, records.hashes[ordered], records, decided.verdicts, ordered)

    def find(self, wanted: Hashes) -> tuple[pa.Table, Hashes]:
        """The versions under these hashes, and which of the hashes have any."""
        low = np.searchsorted(self.hashes, wanted, side="left")
        counts = np.searchsorted(self.hashes, wanted, side="right") - low
        starts = np.repeat(low - np.cumsum(counts) + counts, counts)
        return self._states(self.places[starts + np.arange(len(starts))]), np.flatnonzero(counts)

    def _states(self, places: Hashes) -> pa.Table:
        found = self.records.take(places)
        where = found.positions
        where = where.combine_chunks() if isinstance(where, pa.ChunkedArray) else where
        row = pa.array(np.full(len(places), WHOLE, dtype=np.int32))
        if where.type.get_field_index("row") >= 0:
            row = pc.struct_field(where, "row")
        columns = {
            "key": found.keys,
            "key_hash": found.hashes,
            "sequence": found.sequences,
            "content": found.contents,
            "verdict": pa.array(OF_VERSIONS).take(pa.array(self.verdicts[places])),
            **{name: pc.struct_field(where, name) for name in ("source", "part", "at")},
            "row": row,
            "batch": np.full(len(places), self.batch, dtype=np.int64),
        }
        return pa.table(columns).select(KEY_STATES.names).cast(KEY_STATES)


def _numbers(column: pa.ChunkedArray) -> Hashes:
    numbers: Hashes = pc.cast(column, pa.int64()).to_numpy()
    return numbers
