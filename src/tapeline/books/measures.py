"""Measures of a summary: the one place that knows what each kind is stored as and how it is shown.

A journal stores parts, columns that add up. A sum or a count is one part, an average is two.
Readers add up the parts and ask here for the rest: names, types, numbers, and SQL. A new kind is a
class in `COMPOSED` here, and a rule in spark/shares.py that computes its parts for a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from tapeline.books.averages import average, in_duckdb, in_spark, kind_of_average
from tapeline.books.exact import WIDEST, Kind

Engine = Literal["duckdb", "spark"]
SUM, COUNT = "__avg_sum", "__avg_count"
NOT_ADDITIVE = {b"tapeline": b"average"}  # on a column of shown rows


@dataclass(frozen=True)
class Measure:
    """A sum or a count: what is stored is what is shown."""

    name: str
    kinds: tuple[Kind, ...]  # of its parts
    shown_as: Kind | None = None  # where it is known already
    endings: ClassVar[tuple[str, ...]] = ("",)  # of its parts' names
    adds_up: ClassVar[bool] = True  # whether the numbers of two keys may be added

    @classmethod
    def parts_of(cls, name: str) -> tuple[str, ...]:
        """The stored columns of a measure."""
        return tuple(name + ending for ending in cls.endings)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.parts_of(self.name)

    @property
    def kind(self) -> Kind:
        """The type in which it is shown."""
        return self.shown_as or self.kinds[0]

    def number(self, *parts: Any) -> Any:
        """What is shown, from its parts added up."""
        return parts[0]

    @staticmethod
    def share(*parts: Any) -> Any:
        """What one record brings, from the parts of its share."""
        return parts[0]

    def sql(self, engine: Engine, *parts: str) -> str:
        """What is shown, as SQL, from the SQL of its parts added up; NULL if it does not fit."""
        return f"try_cast({parts[0]} as {self.kind.sql})"


class Average(Measure):
    """A sum and a count of values; divided when somebody reads it."""

    endings = (SUM, COUNT)
    adds_up = False

    @property
    def kind(self) -> Kind:
        return self.shown_as or kind_of_average(self.kinds[0])

    def number(self, *parts: Any) -> Any:
        total, count = parts
        return average(total, int(count), self.kinds[0], self.kind)

    @staticmethod
    def share(*parts: Any) -> Any:
        total, count = parts
        return total if count else None

    def sql(self, engine: Engine, *parts: str) -> str:
        total, count = parts
        divided = in_spark if engine == "spark" else in_duckdb
        return divided(total, count, self.kinds[0])


COMPOSED: tuple[type[Measure], ...] = (Average,)
# A measure of the user's cannot have a name that ends like one of these parts.
RESERVED = tuple(ending for one in COMPOSED for ending in one.endings)


def measures_of(kinds: Mapping[str, Kind]) -> list[Measure]:
    """The measures that stored columns make, in their order."""
    return [
        kind(name, tuple(kinds[part] for part in kind.parts_of(name)))
        for name, kind in _classes(kinds).items()
    ]


def composed_in(kinds: Mapping[str, Kind]) -> list[Measure]:
    """Those that are not stored as they are shown."""
    return [one for one in measures_of(kinds) if one.parts != (one.name,)]


def shown_numbers(stored: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The measures of one row as readers see them."""
    return {
        one.name: one.number(*(stored[part] for part in one.parts)) for one in measures_of(kinds)
    }


def shown_shares(share: Mapping[str, Any]) -> dict[str, Any]:
    """What one record adds to the measures."""
    return {
        name: kind.share(*(share[part] for part in kind.parts_of(name)))
        for name, kind in _classes(share).items()
    }


def shown_fields(stored: pa.Schema, names: Iterable[str]) -> list[pa.Field]:
    """Stored measures as readers see them."""
    kinds = {name: Kind.of(stored.field(name).type) for name in names}
    return [
        stored.field(one.name)
        if one.name in kinds
        else pa.field(one.name, pa.decimal128(one.kind.digits, one.kind.scale))
        for one in measures_of(kinds)
    ]


def shown_rows(rows: pa.Table) -> pa.Table:
    """Folded rows without parts; a number whose parts are beyond their types is computed here."""
    for name, kind in _classes(rows.column_names).items():
        parts = kind.parts_of(name)
        if parts == (name,):
            continue
        kinds = tuple(Kind.of(rows[part].type) for part in parts)
        one = kind(name, kinds, Kind.of(rows[name].type))
        column = _in_full(rows, one)
        more = None if one.adds_up else NOT_ADDITIVE
        field = pa.field(name, column.type, metadata=more)
        rows = rows.set_column(rows.schema.get_field_index(name), field, column)
        rows = rows.drop_columns(list(parts))
    return rows


def stored_rows(rows: pa.Table) -> pa.Table:
    """Folded rows with the parts of measures alone."""
    classes = _classes(rows.column_names)
    return rows.drop_columns([n for n, kind in classes.items() if kind.parts_of(n) != (n,)])


def adds_up(field: pa.Field) -> bool:
    """Whether the numbers of a column of shown rows may be added."""
    return dict(field.metadata or {}) != NOT_ADDITIVE


def _in_full(rows: pa.Table, one: Measure) -> pa.ChunkedArray:
    """A column as the fold gave it, unless some of its numbers did not fit there."""
    shown = rows[one.name]
    if not shown.null_count:
        return shown
    values = zip(*(rows[part].to_pylist() for part in one.parts), strict=True)
    numbers = [one.number(*parts) for parts in values]
    if numbers.count(None) == shown.null_count:
        return shown
    return pa.chunked_array([pa.array(numbers, pa.decimal256(WIDEST, one.kind.scale))])


def _classes(names: Iterable[str]) -> dict[str, type[Measure]]:
    """The measures among stored columns, each with its class, in order."""
    known: Sequence[str] = list(names)
    there = set(known)
    first: dict[str, tuple[str, type[Measure]]] = {}
    parts: set[str] = set()
    for column in known:
        for kind in COMPOSED:
            name = column.removesuffix(kind.endings[0])
            if name != column and there.issuperset(kind.parts_of(name)):
                first[column] = name, kind
                parts.update(kind.parts_of(name))
    found: dict[str, type[Measure]] = {}
    for column in known:
        if column in first:
            found.setdefault(*first[column])
        elif column not in parts and column not in {name for name, _ in first.values()}:
            found[column] = Measure
    return found
