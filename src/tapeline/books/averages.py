"""Averages: kept as a sum and a count, which add up, and divided when somebody reads them.

A division rounds half up, as Spark does. The result has four decimals more than the numbers
themselves, as far as 38 digits allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tapeline.books.exact import MOST_DIGITS, WIDEST, Kind, Number

SUM, COUNT = "__avg_sum", "__avg_count"  # after the name of an average, in journals and links
MORE_DECIMALS = 4
AVERAGE = {b"tapeline": b"average"}  # on the column of an average


def averages_in(names: Iterable[str]) -> list[str]:
    """The averages whose parts are among the stored columns of a summary."""
    known = list(names)
    return [
        name.removesuffix(SUM)
        for name in known
        if name.endswith(SUM) and name.removesuffix(SUM) + COUNT in known
    ]


def kind_of_average(total: Kind) -> Kind:
    """The type in which an average is shown, from the type of its sum."""
    scale = min(total.scale + MORE_DECIMALS, MOST_DIGITS - (total.digits - total.scale))
    digits = min(total.digits + MORE_DECIMALS, MOST_DIGITS)
    return Kind(f"decimal({digits},{scale})", digits, scale)


def average(total: Number, count: int, kind: Kind, shown: Kind | None = None) -> Decimal | None:
    """A sum divided by its count; nothing of no values."""
    if not count:
        return None
    shown = shown or kind_of_average(kind)
    units = kind.units(total) * 10 ** (shown.scale - kind.scale)
    rounded = (2 * abs(units) + count) // (2 * count)
    return Decimal(shown.from_units(rounded if units >= 0 else -rounded))


def shown_kinds(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """The measures as readers see them: an average in the place of its parts."""
    averages = averages_in(kinds)
    found: dict[str, Kind] = {}
    for name, kind in kinds.items():
        if name.removesuffix(SUM) in averages and name.endswith(SUM):
            found[name.removesuffix(SUM)] = kind_of_average(kind)
        elif not (name.endswith(COUNT) and name.removesuffix(COUNT) in averages):
            found[name] = kind
    return found


def shown_numbers(stored: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The measures of one number as readers see them."""
    return {
        name: stored[name]
        if name in kinds
        else average(stored[name + SUM], int(stored[name + COUNT]), kinds[name + SUM])
        for name in shown_kinds(kinds)
    }


def shown_shares(share: Mapping[str, Any]) -> dict[str, Any]:
    """What one record adds to the measures: of an average its own value, if it has one."""
    averages = averages_in(share)
    parts = {name + part for name in averages for part in (SUM, COUNT)}
    found = {name: value for name, value in share.items() if name not in parts}
    return found | {n: share[n + SUM] if share[n + COUNT] else None for n in averages}


def shown_rows(rows: pa.Table) -> pa.Table:
    """Folded rows without the parts of averages; sums beyond their types are divided here."""
    for name in averages_in(rows.column_names):
        totals, counts = rows[name + SUM], rows[name + COUNT].to_pylist()
        if rows[name].null_count > counts.count(0):
            kind, shown = Kind.of(totals.type), Kind.of(rows[name].type)
            pairs = zip(totals.to_pylist(), counts, strict=True)
            exactly = [average(total, int(count), kind, shown) for total, count in pairs]
            column = pa.chunked_array([pa.array(exactly, pa.decimal256(WIDEST, shown.scale))])
        else:
            column = rows[name]
        field = pa.field(name, column.type, metadata=AVERAGE)
        rows = rows.set_column(rows.schema.get_field_index(name), field, column)
        rows = rows.drop_columns([name + SUM, name + COUNT])
    return rows


def is_average(field: pa.Field) -> bool:
    """Whether a column of shown rows is an average, which does not add up."""
    return dict(field.metadata or {}) == AVERAGE


def in_duckdb(total: str, count: str, kind: Kind) -> str:
    """The average as SQL of DuckDB, whose own division would be one of doubles."""
    shown = kind_of_average(kind)
    more, point = (f"cast({10**n} as hugeint)" for n in (shown.scale - kind.scale, shown.scale))
    units = f"try_cast(replace(cast({total} as varchar), '.', '') as hugeint)"
    n = f"cast({count} as hugeint)"
    left = f"(abs({units}) % {n})"
    rounded = f"((abs({units}) // {n}) * {more} + (2 * {left} * {more} + {n}) // (2 * {n}))"
    text = f"cast({rounded} // {point} as varchar)"
    if shown.scale:
        text += f" || '.' || lpad(cast({rounded} % {point} as varchar), {shown.scale}, '0')"
    sign = f"case when {units} < 0 then '-' else '' end"
    return f"case when {count} > 0 then try_cast({sign} || {text} as {shown.sql}) end"


def in_spark(total: str, count: str, kind: Kind) -> str:
    """The average as SQL of Spark, in whole decimals of 38 digits; NULL beyond them."""
    shown = kind_of_average(kind)
    more, point = (
        f"cast({10**n} as decimal(38,0))" for n in (shown.scale - kind.scale, shown.scale)
    )
    units = f"try_cast(replace(cast({total} as string), '.', '') as decimal(38,0))"
    n = f"cast({count} as decimal(20,0))"

    def whole(one: str, by: str) -> str:
        return f"cast(try_divide({one} - {one} % {by}, {by}) as decimal(38,0))"

    left = f"(abs({units}) % {n})"
    rest = whole(f"(2 * {left} * {more} + {n})", f"(2 * {n})")
    rounded = f"try_add(try_multiply({whole(f'abs({units})', n)}, {more}), {rest})"
    text = f"cast({whole(rounded, point)} as string)"
    if shown.scale:
        behind = f"cast(cast({rounded} % {point} as decimal(38,0)) as string)"
        text += f" || '.' || lpad({behind}, {shown.scale}, '0')"
    sign = f"case when {units} < 0 then '-' else '' end"
    return f"case when {count} > 0 then try_cast({sign} || {text} as {shown.sql}) end"
