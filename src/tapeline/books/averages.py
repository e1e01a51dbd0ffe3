"""The division of an average: a sum by its count, in Python, DuckDB and Spark alike.

A division rounds half up, as Spark does. The result has four decimals more than the numbers
themselves, as far as 38 digits allow.
"""

from __future__ import annotations

from decimal import Decimal

from tapeline.books.exact import MOST_DIGITS, Kind, Number

MORE_DECIMALS = 4


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
