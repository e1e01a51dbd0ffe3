"""Verdicts by key: the same record counts once, and of its versions the highest stands.

A pure function over the records of a batch and what is stored of their keys. What it says of a key
depends on that key alone, so a batch may be cut by key and each part decided alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tapeline.books.position import Position
from tapeline.flow.key_index import Hashes

Flags = npt.NDArray[np.bool_]
KEPT, APPLIED, SUPERSEDED, DUPLICATE, CONFLICT = range(5)
NOWHERE = Position("", 0, 0)
# What is stored of keys: each version with its verdict, its place, and the batch that gave it.
KEY_STATES = pa.schema(
    [
        ("key", pa.string()),
        ("key_hash", pa.int64()),
        ("sequence", pa.int64()),
        ("content", pa.binary()),
        ("verdict", pa.string()),
        ("source", pa.string()),
        ("part", pa.int64()),
        ("at", pa.int64()),
        ("row", pa.int32()),
        ("batch", pa.int64()),
    ]
)
NO_STATES = KEY_STATES.empty_table()


@dataclass(frozen=True)
class KeyedRecords:
    """The records of a batch that passed every rule, in tape order."""

    keys: pa.ChunkedArray | pa.Array
    hashes: Hashes
    contents: pa.ChunkedArray | pa.Array
    sequences: Hashes
    deletes: Flags
    positions: pa.ChunkedArray | pa.Array

    def take(self, places: Hashes) -> KeyedRecords:
        """Some of the records, in the order given."""
        chosen = pa.array(places)
        return KeyedRecords(
            self.keys.take(chosen),
            self.hashes[places],
            self.contents.take(chosen),
            self.sequences[places],
            self.deletes[places],
            self.positions.take(chosen),
        )


@dataclass(frozen=True)
class Version:
    """One version of a record: its content, and where it is stored, if it is."""

    content: bytes
    verdict: str = ""
    position: Position = NOWHERE
    batch: int = 0  # the one that gave it this verdict


@dataclass(frozen=True)
class Replaced:
    """A version that stood until this batch, and what took its place."""

    version: Version
    cause: str


@dataclass(frozen=True)
class KeyVerdicts:
    """A verdict for every record, which of them change what stood, and what they replace."""

    verdicts: npt.NDArray[np.int8]
    changes: Flags
    replaced: list[Replaced]


def key_verdicts(records: KeyedRecords, states: pa.Table) -> KeyVerdicts:
    """Fold the records into what stands. Only possible repeats are looked at one by one."""
    verdicts = np.where(records.deletes, APPLIED, KEPT).astype(np.int8)
    changes = records.deletes.copy()
    _, first, counts = np.unique(records.hashes, return_index=True, return_counts=True)
    repeated = np.isin(records.hashes, records.hashes[first[counts > 1]])
    if states.num_rows:
        repeated |= np.isin(records.hashes, states["key_hash"].to_numpy())
    suspects = np.flatnonzero(repeated)
    if not len(suspects):
        return KeyVerdicts(verdicts, changes, [])
    versions = _versions(states)
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
            versions[key][sequence] = Version(content)
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
    return KeyVerdicts(verdicts, changes, replaced)


def _versions(states: pa.Table) -> dict[str, dict[int, Version]]:
    """The stored versions, by key and sequence."""
    found: dict[str, dict[int, Version]] = {}
    columns = [states[name].to_pylist() for name in KEY_STATES.names if name != "key_hash"]
    for key, sequence, content, verdict, *place, batch in zip(*columns, strict=True):
        found.setdefault(key, {})[sequence] = Version(content, verdict, Position(*place), batch)
    return found
