"""The index of key hashes: what is there is found, what is not is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline import OperationError
from tapeline.run.identity import CONFLICT, DUPLICATE, KEPT, Identity, KeyIndex, Records

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


def records(*triples: tuple[str, int, bytes]) -> Records:
    keys, hashes, contents = zip(*triples, strict=True)
    return Records(pa.array(keys), np.array(hashes, dtype=np.int64), pa.array(contents))


def test_two_keys_with_one_hash_stay_two_records(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "register", 100)
    batch = records(("a", 7, b"1"), ("b", 7, b"2"), ("a", 7, b"1"), ("b", 7, b"other"))
    assert identity.judge(batch).tolist() == [KEPT, KEPT, DUPLICATE, CONFLICT]


def test_a_key_of_an_earlier_batch_is_verified_by_its_content(tmp_path: Path) -> None:
    identity = Identity(tmp_path / "register", 100)
    first = records(("a", 1, b"1"), ("b", 2, b"2"))
    identity.remember(1, first, np.array([True, True]))
    second = records(("a", 1, b"1"), ("b", 2, b"changed"), ("c", 3, b"3"))
    assert identity.judge(second).tolist() == [DUPLICATE, CONFLICT, KEPT]
