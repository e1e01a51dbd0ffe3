"""Averages are exact: a sum divided by its count, rounded once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapeline
from tapeline.books import measures
from tapeline.books.averages import average, in_duckdb, kind_of_average
from tapeline.books.exact import Kind
from tapeline.books.fold import typed
from tapeline.books.measures import Engine, Measure, measures_of, shown_rows, shown_shares

KINDS = ["decimal(22,2)", "bigint", "decimal(38,18)", "decimal(38,0)", "decimal(38,2)"]
WIDE = Context(prec=200)


def rounded(total: Decimal | int, count: int, scale: int) -> Decimal:
    """The same by another way."""
    exactly = Fraction(total) / count
    quotient = WIDE.divide(Decimal(exactly.numerator), Decimal(exactly.denominator))
    return quotient.quantize(Decimal(1).scaleb(-scale, WIDE), ROUND_HALF_UP, WIDE)


@pytest.mark.parametrize(
    ("sum_type", "shown"),
    [
        ("decimal(22,2)", "decimal(26,6)"),
        ("bigint", "decimal(23,4)"),
        ("decimal(38,18)", "decimal(38,18)"),
        ("decimal(30,2)", "decimal(34,6)"),
        ("decimal(38,0)", "decimal(38,0)"),
    ],
)
def test_an_average_has_four_decimals_more_as_far_as_there_is_room(
    sum_type: str, shown: str
) -> None:
    assert kind_of_average(Kind.of(sum_type)).sql == shown


@given(
    st.sampled_from(KINDS),
    st.integers(-(10**38) + 1, 10**38 - 1),
    st.integers(0, 37),
    st.integers(1, 2**62),
)
def test_python_and_duckdb_divide_alike(name: str, units: int, shorter: int, count: int) -> None:
    kind = Kind.of(name)
    units = abs(units) // 10**shorter % (kind.most + 1) * (1 if units > 0 else -1)
    total = kind.from_units(units)
    expected = rounded(total, count, kind_of_average(kind).scale)
    assert average(total, count, kind) == expected
    sql = in_duckdb(f"cast('{Decimal(total):f}' as {kind.sql})", f"cast({count} as bigint)", kind)
    assert duckdb.execute(f"select {sql}").fetchall() == [(expected,)]


def test_halves_are_rounded_away_from_zero_and_nothing_has_no_average() -> None:
    kind = Kind.of("decimal(22,2)")
    assert average(Decimal("0.01"), 20_000, kind) == Decimal("0.000001")
    assert average(Decimal("-0.01"), 20_000, kind) == Decimal("-0.000001")
    assert average(Decimal(0), 0, kind) is None
    assert duckdb.execute(
        f"select {in_duckdb('cast(0 as decimal(22,2))', '0', kind)}"
    ).fetchall() == [(None,)]


def test_only_a_sum_with_its_count_is_an_average() -> None:
    number = Kind.of("bigint")
    kinds = dict.fromkeys(["n", "x__avg_sum", "x__avg_count", "y__avg_sum"], number)
    assert [one.name for one in measures_of(kinds)] == ["n", "x", "y__avg_sum"]
    share = {"n": 1, "x__avg_sum": 0, "x__avg_count": 0}
    assert shown_shares(share) == {"n": 1, "x": None}
    assert shown_shares(share | {"x__avg_sum": 7, "x__avg_count": 1}) == {"n": 1, "x": 7}


def test_a_sum_beyond_its_type_is_divided_all_the_same() -> None:
    far = Decimal(10**40)
    rows = pa.table(
        {
            "x": pa.array([None, Decimal("2.5000")], pa.decimal128(23, 4)),
            "x__avg_sum": pa.array([far, Decimal(5)], pa.decimal256(76, 0)),
            "x__avg_count": pa.array([3, 2], pa.int64()),
        }
    )
    assert shown_rows(rows).to_pylist()[1]["x"] == Decimal("2.5")
    assert shown_rows(rows).column_names == ["x"]
    assert int(shown_rows(rows).to_pylist()[0]["x"]) == 10**40 // 3


def test_one_module_knows_what_measures_are_made_of() -> None:
    """Whoever adds a kind of measure changes books/measures.py and spark/shares.py."""
    source = Path(tapeline.__file__).parent
    knowing = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"books\.averages|\b(SUM|COUNT)\b.*\bimport|import .*\b(SUM|COUNT)\b|__avg_",
                     path.read_text(encoding="utf-8"))
    }  # fmt: skip
    assert knowing == {"books/measures.py", "spark/shares.py"}


@dataclass(frozen=True)
class Spread(Measure):
    """A kind of measure that this test adds: the distance of two sums."""

    endings = ("__high", "__low")
    adds_up = False

    def number(self, *parts: Any) -> Any:
        return parts[0] - parts[1]

    @staticmethod
    def share(*parts: Any) -> Any:
        return parts[0] - parts[1]

    def sql(self, engine: Engine, *parts: str) -> str:
        return f"try_cast({parts[0]} - {parts[1]} as {self.kind.sql})"


def test_a_new_kind_of_measure_is_shown_by_every_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "COMPOSED", (*measures.COMPOSED, Spread))
    kinds = dict.fromkeys(["n", "s__high", "s__low"], Kind.of("bigint"))
    columns, overflow = typed(kinds)
    assert columns[1] == 'try_cast("s__high" - "s__low" as bigint) as "s"'
    assert '"s__low"' in overflow
    assert measures.shown_numbers({"n": 1, "s__high": 9, "s__low": 4}, kinds) == {"n": 1, "s": 5}
    assert shown_shares({"s__high": 9, "s__low": 4}) == {"s": 5}
    rows = shown_rows(pa.table({"k": ["a"], "s": [5], "s__high": [9], "s__low": [4]}))
    assert rows.column_names == ["k", "s"]
    assert [measures.adds_up(field) for field in rows.schema] == [True, False]
