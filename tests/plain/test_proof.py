"""The hash of rows is one number, however it is computed and whatever their order."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.books import proof

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("d", pa.decimal128(18, 8)),
        ("wide", pa.decimal128(38, 14)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("reasons", pa.list_(pa.string())),
        ("place", pa.struct([("source", pa.string()), ("at", pa.int64())])),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "b": st.booleans(),
    "s": TEXT,
    "raw": st.binary(max_size=8),
    "d": st.decimals(-(10**9), 10**9, places=8),
    "wide": st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-14)),
    "day": st.dates(date(1970, 1, 1), date(2200, 1, 1)),
    "moment": st.integers(0, 2**52).map(lambda n: EPOCH + timedelta(microseconds=n)),
    "reasons": st.lists(TEXT, max_size=3),
    "place": st.fixed_dictionaries({"source": TEXT, "at": st.integers(0, 2**40)}),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    min_size=1,
    max_size=5,
)


@settings(deadline=None)
@given(ROWS, st.randoms())
def test_arrow_and_duckdb_agree_and_order_does_not_matter(rows: list[Any], chance: Any) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    found = proof.hash_of(table)
    with patch.object(proof, "FEW_ROWS", -1):
        assert proof.hash_of(table) == found
    chance.shuffle(rows)
    assert proof.hash_of(pa.Table.from_pylist(rows, schema=SCHEMA)) == found


@settings(deadline=None)
@given(ROWS, st.integers(0, 10**9))
def test_another_value_gives_another_hash(rows: list[Any], number: int) -> None:
    before = proof.hash_of(pa.Table.from_pylist(rows, schema=SCHEMA))
    changed = [{**rows[0], "i": number if rows[0]["i"] != number else -1}, *rows[1:]]
    assert proof.hash_of(pa.Table.from_pylist(changed, schema=SCHEMA)) != before
