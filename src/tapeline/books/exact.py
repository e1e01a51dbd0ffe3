"""Adding numbers up without losing a digit, whatever their size: the one place that does it.

Every engine has a largest number: Arrow wraps around beyond it, DuckDB refuses. So sums go the
fast way only where they cannot leave their type, and otherwise through integers without a limit.
A sum that does not fit its column is stored in parts, which add up to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cache
from typing import Any

import pyarrow as pa

from tapeline.errors import TapelineBug
from tapeline.store.duckdb import Connection, OutOfRange

Number = int | Decimal
MOST_DIGITS = 38  # of a decimal in Spark, DuckDB and Delta
ROOM_DIGITS = 10  # sums of up to 10 to this power rows need no more digits than this
WIDEST = 76  # digits of Arrow's widest decimal: those of ten billion billion sums of 38
OVERFLOW = "_overflow"  # says of a folded row that one of its numbers outgrew its type
BESIDE = "_exact_"  # a folded row's column that holds such a number as text
EXACT = Context(prec=1_000, traps=[Inexact, InvalidOperation])
DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.IGNORECASE)
BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "INT": 32, "BIGINT": 64, "HUGEINT": 128}


@dataclass(frozen=True)
class Kind:
    """The type of a measure: decimals of some digits, or integers of some bits."""

    sql: str
    digits: int
    scale: int = 0
    bits: int = 128

    whole: bool = False

    @staticmethod
    def of(kind: pa.DataType | str) -> Kind:
        """From a type of Arrow, or the name that SQL has for it."""
        return _kind_of(kind if isinstance(kind, str) else _sql_name(kind))

    @property
    def wide(self) -> bool:
        """Whether a plain sum in SQL may need more than 38 digits."""
        return self.digits > MOST_DIGITS - ROOM_DIGITS

    @property
    def most(self) -> int:
        """The largest number that fits, in units of its last digit."""
        return int(2 ** (self.bits - 1) if self.whole else 10**self.digits) - 1

    def units(self, value: Number) -> int:
        """A number as an integer of its last digits."""
        return int(EXACT.scaleb(Decimal(value), self.scale))

    def number(self, value: Number | str | None) -> Number:
        """A sum as DuckDB gives it, in text where nothing else holds it."""
        said = 0 if value is None else value
        return int(said) if self.whole else Decimal(said)

    def from_units(self, units: int) -> Number:
        return units if self.whole else EXACT.scaleb(Decimal(units), -self.scale)

    def fits(self, value: Number) -> bool:
        return abs(self.units(value)) <= self.most

    def wrapped(self, value: Number) -> Number:
        """What Arrow makes of a sum that its type does not hold: it starts again from below."""
        half = 2 ** (self.bits - 1)
        return self.from_units((self.units(value) + half) % (2 * half) - half)


@cache
def _kind_of(name: str) -> Kind:
    found = DECIMAL.fullmatch(name)
    if found:
        return Kind(name, int(found[1]), int(found[2]))
    bits = BITS.get(name.upper())
    if bits is None:
        raise TapelineBug(f"the type {name} is not additive.")
    return Kind(name, len(str(2 ** (bits - 1))), 0, bits, whole=True)


def _sql_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return {64: "bigint", 32: "int", 16: "smallint", 8: "tinyint"}.get(kind.bit_width, str(kind))


def add(one: Number, other: Number) -> Number:
    """Two numbers added up, to the last digit."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return EXACT.add(Decimal(one), Decimal(other))


def total(numbers: Iterable[Number]) -> Number:
    found: Number = 0
    for number in numbers:
        found = add(found, number)
    return found


def text(number: Number) -> str:
    """A number as text: every digit, no exponent; nothing at all is 0."""
    return f"{number:f}" if number and isinstance(number, Decimal) else str(int(number))


# ---- Arrow


def reach(column: pa.ChunkedArray) -> int:
    """How far from zero the numbers of a column go, in units of the last digit."""
    import pyarrow.compute as pc

    ends = pc.min_max(column).as_py()
    units = Kind.of(column.type).units
    return max(abs(units(ends["min"] or 0)), abs(units(ends["max"] or 0)))


def widened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same numbers in a type that holds any sum of them."""
    return column.cast(pa.decimal256(WIDEST, Kind.of(column.type).scale))


def in_parts(rows: pa.Table, schema: pa.Schema, measures: Sequence[str]) -> pa.Table:
    """Rows whose sums fit the columns of a schema: one that does not becomes several rows.

    The entries are counted in the first of them.
    """
    import pyarrow.compute as pc

    kinds = {name: Kind.of(schema.field(name).type) for name in measures}
    fits = pa.array([True] * rows.num_rows, pa.bool_())
    for name, kind in kinds.items():
        most = pa.scalar(kind.from_units(kind.most), rows[name].type)
        fits = pc.and_(fits, pc.less_equal(pc.abs(rows[name]), most))
    whole = rows.filter(fits).select(schema.names).cast(schema)
    if whole.num_rows == rows.num_rows:
        return whole
    parts = [
        part
        for row in rows.filter(pc.invert(fits)).select(schema.names).to_pylist()
        for part in _parts(row, kinds)
    ]
    return pa.concat_tables([whole, pa.Table.from_pylist(parts, schema)])


def _parts(row: dict[str, Any], kinds: dict[str, Kind]) -> Iterator[dict[str, Any]]:
    left = {name: kind.units(row[name]) for name, kind in kinds.items()}
    entries = row["_entries"]
    while True:
        part = {n: max(-kinds[n].most, min(kinds[n].most, units)) for n, units in left.items()}
        left = {name: units - part[name] for name, units in left.items()}
        numbers = {name: kinds[name].from_units(units) for name, units in part.items()}
        yield row | numbers | {"_entries": entries}
        if not any(left.values()):
            return
        entries = 0


# ---- DuckDB

Summing = Callable[..., str]  # a column, its kind, perhaps a filter or a window: SQL of its sum


def plain_sum(column: str, kind: Kind, of: str = "") -> str:
    """The sum of a column, as quick as it gets; DuckDB refuses what needs more than 38 digits."""
    return f"sum({column}){of}"


def exact_sum(column: str, kind: Kind, of: str = "", function: str = "sum") -> str:
    """The sum of a column, or another aggregate, as text: of any size."""
    units = f"cast(replace(cast({column} as varchar), '.', '') as bignum)"
    added = f"cast(coalesce({function}({units}){of}, cast('0' as bignum)) as varchar)"
    if not kind.scale:
        return added
    digits = f"ltrim({added}, '-')"
    length = f"greatest(cast(length({digits}) as integer), {kind.scale + 1})"
    padded = f"lpad({digits}, {length}, '0')"
    sign = f"case when {added}[1] = '-' then '-' else '' end"
    return f"{sign} || left({padded}, -{kind.scale}) || '.' || right({padded}, {kind.scale})"


def summed(
    connection: Connection,
    write: Callable[[Summing], str],
    values: Sequence[Any] = (),
) -> list[tuple[Any, ...]]:
    """Ask for sums: the quick way, and where DuckDB refuses because they are too large, exactly.

    `write` makes the query from a way to sum; `Kind.number` reads what it gives.
    """
    try:
        return connection.execute(write(plain_sum), list(values)).fetchall()
    except OutOfRange:
        return connection.execute(write(exact_sum), list(values)).fetchall()


def sums_of(
    connection: Connection, rows: str, kinds: Mapping[str, Kind], of: str = ""
) -> dict[str, str]:
    """SQL of the sums of some rows' columns, by any grouping, that DuckDB never refuses."""
    wide = [column for column, kind in kinds.items() if kind.wide]
    exactly: set[str] = set()
    if wide:
        ends = ", ".join(f"max({column}), min({column})" for column in wide)
        ((count, *found),) = connection.execute(f"select count(*), {ends} from {rows}").fetchall()
        for place, column in enumerate(wide):
            furthest = max(abs(kinds[column].units(end or 0)) for end in found[2 * place :][:2])
            if furthest * count >= 10**MOST_DIGITS:
                exactly.add(column)
    return {
        column: (exact_sum if column in exactly else plain_sum)(column, kind, of)
        for column, kind in kinds.items()
    }


def widest(kind: pa.DataType) -> pa.DataType:
    """A type that also holds what outgrew this one."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, widest(one.type)) for one in kind])
    number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return pa.decimal256(WIDEST, Kind.of(kind).scale) if number else kind


def settled(rows: pa.Table) -> pa.Table:
    """Folded rows with every number in full: what outgrew its type stands beside it as text."""
    for name in [one for one in rows.column_names if one.startswith(BESIDE)]:
        measure, beside = name.removeprefix(BESIDE), rows[name]
        rows = rows.drop_columns([name])
        if beside.null_count == len(beside):
            continue
        place, kind = rows.schema.get_field_index(measure), Kind.of(rows[measure].type)
        pairs = zip(rows[measure].to_pylist(), beside.to_pylist(), strict=True)
        numbers = [Decimal(far if known is None else known) for known, far in pairs]
        column = pa.array(numbers, pa.decimal256(WIDEST, kind.scale))
        rows = rows.set_column(place, measure, column)
    return rows.drop_columns([OVERFLOW]) if OVERFLOW in rows.column_names else rows
