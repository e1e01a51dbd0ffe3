"""One hash of rows in whatever order they are stored, and another one when a value differs."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.books.row_hash import hash_of
from tapeline.store.duckdb import connect

PLACE = pa.struct([("source", pa.string()), ("part", pa.int64()), ("at", pa.int64())])
SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("d", pa.decimal128(18, 8)),
        ("wide", pa.decimal128(38, 14)),
        ("f", pa.float64()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("_reasons", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.decimal128(12, 2))),
        ("_position", PLACE),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXT = st.text(max_size=8)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "b": st.booleans(),
    "s": TEXT,
    "raw": st.binary(max_size=8),
    "d": st.decimals(-(10**9), 10**9, places=8),
    "wide": st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-14)),
    "f": st.floats(allow_nan=False),
    "day": st.dates(date(1970, 1, 1), date(2200, 1, 1)),
    "moment": st.integers(0, 2**52).map(lambda n: EPOCH + timedelta(microseconds=n)),
    "_reasons": st.lists(TEXT, max_size=3),
    "map": st.dictionaries(
        TEXT, st.none() | st.decimals(-(10**9), 10**9, places=2), max_size=3
    ).map(lambda found: list(found.items())),
}
PLACES = st.fixed_dictionaries(
    {"source": st.sampled_from("ab"), "part": st.integers(0, 3), "at": st.integers(0, 3)}
)
ROWS = st.lists(
    st.builds(
        lambda values, place: {**values, "_position": place},
        st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
        PLACES,
    ),
    min_size=1,
    max_size=6,
)


def table(rows: list[Any]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_order_chunks_and_files_do_not_matter(rows: list[Any], chance: Any) -> None:
    found = hash_of(table(rows))
    chance.shuffle(rows)
    assert hash_of(table(rows)) == found
    cut = chance.randint(0, len(rows))
    assert hash_of(pa.concat_tables([table(rows[:cut]), table(rows[cut:])])) == found
    assert hash_of(table([rows[0], *rows]).slice(1)) == found
    file = io.BytesIO()
    pq.write_table(table(rows), file)
    with connect() as connection:
        connection.register("t", pq.read_table(file))
        assert hash_of(connection.sql("select * from t").to_arrow_table()) == found


@settings(deadline=None)
@given(ROWS, st.data())
def test_another_value_gives_another_hash(rows: list[Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(VALUES)))
    value = data.draw((st.none() | VALUES[name]).filter(lambda v: v != rows[0][name]))
    changed = [{**rows[0], name: value}, *rows[1:]]
    assert hash_of(table(changed)) != hash_of(table(rows))


def test_rows_with_one_place_are_ordered_by_their_values() -> None:
    place = {"source": "a", "part": 1, "at": 1}
    rows = [{"i": n, "_position": place, "_reasons": [str(n)]} for n in (2, 1, 3)]
    assert hash_of(table(rows)) == hash_of(table(rows[::-1]))
