"""Numbers at and beyond the limits of their types, and the posting of their shares."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from hypothesis import strategies as st

from tapeline.books.schemas import LINKS, POSITION, with_columns
from tapeline.flow import posting
from tapeline.flow.steps import SummaryStep

KINDS = [
    pa.int32(), pa.int64(), pa.decimal128(10, 2), pa.decimal128(28, 2), pa.decimal128(29, 0),
    pa.decimal128(38, 0), pa.decimal128(38, 9), pa.decimal128(38, 16), pa.decimal128(38, 28),
    pa.decimal128(38, 37), pa.decimal128(38, 38),
]  # fmt: skip


def limit_of(kind: pa.DataType) -> int:
    """The largest number of a type in units of its last digit, said without the code under test."""
    if pa.types.is_integer(kind):
        return int(2 ** (kind.bit_width - 1)) - 1
    return int("9" * kind.precision)


def money(units: int, scale: int) -> Decimal:
    """Units of the last digit as a decimal, from its text."""
    return Decimal(f"{units}E-{scale}")


def value_of(units: int, kind: pa.DataType) -> Any:
    return units if pa.types.is_integer(kind) else money(units, kind.scale)


def near_limits(kind: pa.DataType) -> st.SearchStrategy[int]:
    most = limit_of(kind)
    ends = [most, most - 1, most // 2, most // 2 + 1, most // 3, 1, 0]
    known = st.sampled_from([*ends, *(-one for one in ends)])
    return known | st.integers(-most, most) | st.integers(-1_000, 1_000)


@st.composite
def measured(draw: st.DrawFn) -> tuple[pa.DataType, list[tuple[str, int, int]]]:
    """A type, and shares of it: a key, a sign, and units of the last digit."""
    kind = draw(st.sampled_from(KINDS))
    share = st.tuples(st.sampled_from("ab"), st.sampled_from([1, 1, -1]), near_limits(kind))
    return kind, draw(st.lists(share, min_size=1, max_size=12))


def links_of(kind: pa.DataType, shares: list[tuple[str, int, int]], batch: int = 1) -> pa.Table:
    rows = [
        {"k": key, "m": value_of(units, kind), "_position": {"source": "s", "part": 1, "at": at},
         "_sign": sign, "_cause": "on_time" if sign > 0 else "correction", "_batch": batch}
        for at, (key, sign, units) in enumerate(shares)
    ]  # fmt: skip
    schema = with_columns(pa.schema([("k", pa.string()), ("m", kind)]), LINKS)
    assert schema.field("_position").type == POSITION
    return pa.Table.from_pylist(rows, schema)


def post(
    kind: pa.DataType, shares: list[tuple[str, int, int]], batch: int = 1
) -> tuple[pa.Table, dict[str, str]]:
    """The journal entries of some shares, without Spark."""
    columns = pa.schema([("k", pa.string()), ("m", kind)])
    step = SimpleNamespace(
        columns=columns, measures=("m",), summary=SimpleNamespace(name="s", key=("k",))
    )
    return posting._add_up(cast(SummaryStep, step), links_of(kind, shares, batch), batch, 0)
