"""The index of key hashes: what is there is found, what is not is not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline import OperationError
from tapeline.books.position import Position
from tapeline.flow.identity import Identity
from tapeline.flow.key_index import KeyIndex
from tapeline.flow.key_verdicts import (
    APPLIED,
    CONFLICT,
    DUPLICATE,
    KEPT,
    SUPERSEDED,
    KeyedRecords,
    KeyVerdicts,
    key_verdicts,
)

HASHES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30)


@given(st.lists(HASHES, max_size=8), HASHES)
def test_the_index_finds_exactly_what_was_added(
    batches: list[list[int]], wanted: list[int]
) -> None:
    index = KeyIndex(10_000)
    for number, hashes in enumerate(batches):
        index.add(np.array(hashes, dtype=np.int64), np.full(len(hashes), number, dtype=np.int64))
    places, found = index.find(np.array(wanted, dtype=np.int64))
    expected = {(p, n) for p, h in enumerate(wanted) for n, b in enumerate(batches) if h in b}
    assert set(zip(places.tolist(), found.tolist(), strict=True)) == expected


def test_a_full_index_says_so() -> None:
    index = KeyIndex(1)
    with pytest.raises(OperationError, match="identity index is full"):
        index.add(np.array([1, 2]), np.array([1, 1]))


def records(*found: tuple[str, int, bytes] | tuple[str, int, bytes, int, bool]) -> KeyedRecords:
    """Records as (key, hash, content), or with a sequence and whether they delete."""
    whole = [(*one, 1, False)[:5] if len(one) == 3 else one for one in found]
    keys, hashes, contents, sequences, deletes = zip(*whole, strict=True)
    positions = [{"source": "s", "part": 1, "at": at} for at in range(len(found))]
    return KeyedRecords(
        pa.array(keys),
        np.array(hashes, dtype=np.int64),
        pa.array(contents),
        np.array(sequences, dtype=np.int64),
        np.array(deletes, dtype=np.bool_),
        pa.array(positions),
    )


def decided(identity: Identity, batch: KeyedRecords) -> KeyVerdicts:
    return key_verdicts(batch, identity.states(batch.hashes))


def test_two_keys_with_one_hash_stay_two_records(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "register", 100)
    batch = records(("a", 7, b"1"), ("b", 7, b"2"), ("a", 7, b"1"), ("b", 7, b"other"))
    assert decided(identity, batch).verdicts.tolist() == [KEPT, KEPT, DUPLICATE, CONFLICT]


def test_a_key_of_an_earlier_batch_is_verified_by_its_content(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "register", 100)
    first = records(("a", 1, b"1"), ("b", 2, b"2"))
    identity.remember(1, first, decided(identity, first))
    second = records(("a", 1, b"1"), ("b", 2, b"changed"), ("c", 3, b"3"))
    assert decided(identity, second).verdicts.tolist() == [DUPLICATE, CONFLICT, KEPT]


def test_the_highest_version_stands_whichever_came_first(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "register", 100)
    first = records(("a", 1, b"2", 2, False), ("b", 2, b"1", 1, False), ("c", 3, b"3", 3, True))
    folded = decided(identity, first)
    assert folded.verdicts.tolist() == [KEPT, KEPT, APPLIED]
    identity.remember(1, first, folded)
    second = records(
        ("a", 1, b"1", 1, False),
        ("b", 2, b"3", 3, False),
        ("b", 2, b"2", 2, False),
        ("c", 3, b"1", 1, False),
        ("c", 3, b"3", 3, True),
    )
    folded = decided(identity, second)
    assert folded.verdicts.tolist() == [SUPERSEDED, KEPT, SUPERSEDED, SUPERSEDED, DUPLICATE]
    assert [(r.version.position, r.version.batch, r.cause) for r in folded.replaced] == [
        (Position("s", 1, 1), 1, "correction")
    ]
    assert folded.changes.tolist() == [False, True, False, False, False]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(1, 4), st.sampled_from([b"x", b"y"]), st.booleans()
    ),
    max_size=12,
)


@given(EVENTS, st.data())
def test_any_cut_of_a_history_gives_the_same_standing_versions(
    events: list[tuple[str, int, bytes, bool]], data: st.DataObject
) -> None:
    """Against plain Python: the first of a version is the version, the highest stands."""
    identity = Identity(Path("nowhere"), 1_000)
    standing: dict[str, tuple[int, bytes]] = {}
    counts: Counter[int] = Counter()
    left, batch = list(events), 0
    while left:
        size = data.draw(st.integers(1, len(left)))
        cut, left, batch = left[:size], left[size:], batch + 1
        found = records(*((k, hash(k), c, s, d) for k, s, c, d in cut))
        folded = decided(identity, found)
        identity.remember(batch, found, folded)
        for (key, sequence, content, _), verdict in zip(cut, folded.verdicts, strict=True):
            counts[int(verdict)] += 1
            if verdict in (KEPT, APPLIED):
                standing[key] = (sequence, content)
        # What is replaced was kept or applied, and is superseded now.
        for one in folded.replaced:
            counts[KEPT if one.version.verdict == "kept" else APPLIED] -= 1
            counts[SUPERSEDED] += 1
    versions: dict[tuple[str, int], tuple[bytes, bool]] = {}
    expected: Counter[int] = Counter()
    for key, sequence, content, deletes in events:
        known = versions.setdefault((key, sequence), (content, deletes))
        expected[DUPLICATE if known[0] == content else CONFLICT] += 1
    highest = {key: max(s for k, s in versions if k == key) for key, _ in versions}
    for (key, sequence), (_, deletes) in versions.items():
        expected[DUPLICATE] -= 1  # the first of a version is no duplicate of itself
        stands = sequence == highest[key]
        expected[(APPLIED if deletes else KEPT) if stands else SUPERSEDED] += 1
    assert standing == {k: (s, versions[k, s][0]) for k, s in highest.items()}
    assert +counts == +expected


@given(EVENTS, EVENTS, st.integers(1, 3))
def test_a_batch_may_be_cut_by_key(
    before: list[tuple[str, int, bytes, bool]],
    now: list[tuple[str, int, bytes, bool]],
    buckets: int,
) -> None:
    """Each part, decided by itself, gets what it gets in the whole."""
    identity = Identity(Path("nowhere"), 1_000)
    # One hash for two keys too: a collision must not tie them together.
    hashes = {"a": 1, "b": 1 if buckets == 3 else 2}
    if before:
        first = records(*((k, hashes[k], c, s, d) for k, s, c, d in before))
        identity.remember(1, first, decided(identity, first))
    if not now:
        return
    batch = records(*((k, hashes[k], c, s, d) for k, s, c, d in now))
    states = identity.states(batch.hashes)
    whole = key_verdicts(batch, states)
    parts = []
    for bucket in range(buckets):
        places = np.flatnonzero(batch.hashes % buckets == bucket)
        part = key_verdicts(batch.take(places), identity.states(batch.hashes[places]))
        assert part.verdicts.tolist() == whole.verdicts[places].tolist()
        assert part.changes.tolist() == whole.changes[places].tolist()
        parts += part.replaced
    assert sorted(map(str, parts)) == sorted(map(str, whole.replaced))
