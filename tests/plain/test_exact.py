"""Sums at and beyond every limit, against Python's own integers, which have none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.books import exact
from tapeline.books.audit.checks import compared
from tapeline.books.exact import Kind
from tapeline.store.duckdb import connect
from tests.support.large_numbers import (
    limit_of,
    measured,
    money,
    post,
    value_of,
)


def added(rows: list[dict[str, Any]], kind: pa.DataType) -> dict[Any, int]:
    """Entries added up by key and cause, in Python's integers."""
    scale = 0 if pa.types.is_integer(kind) else kind.scale
    found: dict[Any, int] = {}
    for row in rows:
        place = (row["k"], row["_cause"])
        found[place] = found.get(place, 0) + int(Decimal(row["m"]).scaleb(scale, exact.EXACT))
    return found


@settings(deadline=None, max_examples=200)
@given(measured())
def test_entries_and_totals_are_exact_whatever_their_size(
    given_shares: tuple[pa.DataType, list[tuple[str, int, int]]],
) -> None:
    kind, shares = given_shares
    entries, totals = post(kind, shares)
    expected: dict[Any, int] = {}
    for key, sign, units in shares:
        place = (key, "on_time" if sign > 0 else "correction")
        expected[place] = expected.get(place, 0) + sign * units
    assert added(entries.to_pylist(), kind) == expected
    assert entries.schema.field("m").type == kind
    assert sum(entries["_entries"].to_pylist()) == sum(sign for _, sign, _ in shares)
    scale = 0 if pa.types.is_integer(kind) else kind.scale
    assert Decimal(totals["m"]) == money(sum(expected.values()), scale)
    assert "E" not in totals["m"]


@pytest.mark.parametrize("rows", [10, 5_000])
def test_a_batch_of_ordinary_numbers_has_one_entry_per_key(rows: int) -> None:
    """Also where DuckDB adds up."""
    kind = pa.decimal128(38, 16)
    entries, totals = post(kind, [("a", 1, 10**20), ("b", 1, 7)] * (rows // 2))
    assert entries["k"].to_pylist() == ["a", "b"]
    assert added(entries.to_pylist(), kind)["a", "on_time"] == 10**20 * (rows // 2)
    assert Decimal(totals["m"]) == money((10**20 + 7) * (rows // 2), 16)


def test_many_records_too_large_together_are_added_up_too() -> None:
    entries, totals = post(pa.int64(), [("a", 1, 2**62)] * 3_000)
    assert sum(entries["m"].to_pylist()) == 3_000 * 2**62 == int(totals["m"])
    assert sum(entries["_entries"].to_pylist()) == 3_000


@settings(deadline=None, max_examples=200)
@given(measured())
def test_a_sum_in_sql_is_exact_whatever_its_size(
    given_shares: tuple[pa.DataType, list[tuple[str, int, int]]],
) -> None:
    arrow, shares = given_shares
    kind = Kind.of(arrow)
    units = [sign * number for _, sign, number in shares]
    expected = value_of(sum(units), arrow)
    with connect() as connection:
        numbers = pa.array([value_of(one, arrow) for one in units], arrow)
        connection.register("t", pa.table({"m": numbers}))

        def query(add: exact.Summing) -> str:
            return f"select {add('m', kind)} from t"

        ((found,),) = exact.summed(connection, query)
        assert kind.number(found) == expected
        exactly = exact.exact_sum("m", kind)
        ((text, typed),) = connection.execute(
            f"select {exactly}, try_cast({exactly} as {kind.sql}) from t"
        ).fetchall()
    assert Decimal(text) == expected
    fits = -limit_of(arrow) - pa.types.is_integer(arrow) <= sum(units) <= limit_of(arrow)
    assert typed == (expected if fits else None)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=20), max_size=20))
def test_decimals_are_added_to_the_last_digit_in_any_order(numbers: list[Decimal]) -> None:
    expected = sum(int(one.scaleb(20, exact.EXACT)) for one in numbers)
    assert exact.total(numbers) == money(expected, 20)
    assert exact.total(reversed(numbers)) == exact.total(numbers)


def test_totals_of_older_versions_wrapped_around() -> None:
    """What the issue saw: 6e18 twice as a bigint."""
    assert Kind.of("BIGINT").wrapped(12 * 10**18) == -6446744073709551616
    assert Kind.of("BIGINT").wrapped(6 * 10**18) == 6 * 10**18


def test_two_equal_sides_balance_in_whatever_order_their_batches_come() -> None:
    """The audit's false alarm: Python's decimals round at 28 digits, each order in its own way."""
    long, last = Decimal("6000000000000000000000.0000000000000001"), Decimal("0.0000000000000001")
    back = long.copy_negate()  # a minus would round, too
    check = compared("money", {1: long, 2: last, 3: back}, {1: long, 3: back, 2: last})
    assert check.balances
    assert check.expected == "0.0000000000000001"
