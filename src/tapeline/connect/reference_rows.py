"""Rows of an outside system as a table of Arrow: each value as text, then as its declared type."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tapeline.declare.duration import parse_duration
from tapeline.declare.schema import parse_schema
from tapeline.errors import DeclarationError, OperationError
from tapeline.formats.reference_file import arrow_type

SORTABLE = (pa.types.is_nested, pa.types.is_dictionary)


def types_of(schema: str | None) -> dict[str, pa.DataType] | None:
    """The declared columns; None without a schema."""
    return {f.name: arrow_type(f) for f in parse_schema(schema)} if schema else None


def check_every(what: str, every: str) -> None:
    """An age is a length of time above zero."""
    if parse_duration(every).total_seconds() <= 0:
        raise DeclarationError(f"{what}: every='{every}' must be above zero.")


def table_of(
    what: str, rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType] | None
) -> pa.Table:
    """A table with these columns; without types every column is text."""
    if types is None:
        types = dict.fromkeys((name for row in rows for name in row), pa.string())
    columns = {
        name: _column(what, name, (row.get(name) for row in rows), kind)
        for name, kind in types.items()
    }
    return pa.table(columns, schema=pa.schema(list(types.items())))


def in_order(rows: pa.Table) -> pa.Table:
    """The rows in an order of their own: a system that shuffles them has not changed them."""
    plain = [f.name for f in rows.schema if not any(test(f.type) for test in SORTABLE)]
    ordered = rows.sort_by([(name, "ascending") for name in plain]) if plain else rows
    return ordered.combine_chunks()


def _column(what: str, name: str, values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    texts = pa.array([_text(value) for value in values], pa.string())
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid as error:
        raise OperationError(
            f"{what}: the column '{name}' does not fit its type {kind}: {error}. Correct the "
            "schema, or the data."
        ) from None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, default=str, ensure_ascii=False)
