"""Proof of rows: a hash that does not depend on their order, the same from Arrow and from files.

Each row has one canonical text; the hash of some rows is the sum of the first 60 bits of the
SHA-256 of each text. It is plain SQL over text, so Spark, DuckDB or anything else can check it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.query import connect

BETWEEN_FIELDS, BETWEEN_ITEMS, NOTHING = 31, 30, 0  # characters that no number or time contains
# For so few rows DuckDB takes longer to plan the query than Arrow to make the texts.
FEW_ROWS = 2_000


def rows_hash(schema: pa.Schema) -> str:
    """An SQL aggregate over rows of a schema: their hash as a whole number."""
    texts = ", ".join(_or_nothing(_text(_quoted(f.name), f.type)) for f in schema)
    text = f"concat_ws(chr({BETWEEN_FIELDS}), {texts})"
    return f"coalesce(sum(cast('0x' || substr(sha256({text}), 1, 15) as hugeint)), 0)"


def hash_of(rows: pa.Table) -> str:
    """The hash of rows in memory."""
    if rows.num_rows <= FEW_ROWS and all(_is_plain(f.type) for f in rows.schema):
        texts = _joined([_texts(column) for column in rows.columns], BETWEEN_FIELDS)
        return str(sum(_hash(text) for text in texts.to_pylist()))
    with connect() as connection:
        connection.register("rows_to_prove", rows)
        query = f"select {rows_hash(rows.schema)} from rows_to_prove"
        (found,) = connection.execute(query).fetchall()
    return str(int(found[0]))


def _hash(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


def listed_hash(row: Mapping[str, Any]) -> int:
    """The hash of a row of tape_batches."""
    moment = row["at"].astimezone(UTC).isoformat()
    pieces = ",".join(map(str, row["pieces"]))
    values = [row["batch"], moment, pieces, row["records"], row["bytes"], row["deliveries"]]
    return _hash(json.dumps([str(value) for value in values]))


def _text(column: str, kind: pa.DataType) -> str:
    """The one text of a value; null when the value is."""
    if pa.types.is_timestamp(kind):
        return f"cast(epoch_us({column}) as varchar)"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"hex({column})"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_struct(kind):
        parts = ", ".join(_or_nothing(_text(f"{column}.{_quoted(f.name)}", f.type)) for f in kind)
        whole = f"concat_ws(chr({BETWEEN_ITEMS}), {parts})"
        return f"case when {column} is not null then {whole} end"
    if pa.types.is_list(kind):
        return f"array_to_string({column}, chr({BETWEEN_ITEMS}))"
    return f"cast({column} as varchar)"


def _or_nothing(text: str) -> str:
    return f"coalesce({text}, chr({NOTHING}))"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow writes values of a type as DuckDB does, or can be helped to."""
    if pa.types.is_struct(kind):
        return all(_is_plain(f.type) for f in kind)
    if pa.types.is_list(kind):
        return bool(pa.types.is_string(kind.value_type))
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
    )


def _texts(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The texts that _text makes in SQL, nulls included."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = values.type
    if pa.types.is_struct(kind):
        parts = [_texts(pc.struct_field(values, f.name)) for f in kind]
        whole = _joined(parts, BETWEEN_ITEMS)
        texts = pc.if_else(pc.is_valid(values), whole, pa.scalar(None, pa.string()))
    elif pa.types.is_list(kind):
        texts = pc.binary_join(values, chr(BETWEEN_ITEMS))
    elif pa.types.is_binary(kind):
        found = [None if v is None else v.hex().upper() for v in values.to_pylist()]
        texts = pa.array(found, pa.string())
    elif pa.types.is_timestamp(kind):
        texts = values.cast(pa.int64()).cast(pa.string())
    else:
        texts = values.cast(pa.string())
        if pa.types.is_decimal(kind):
            texts = _plain_decimals(texts, kind.scale)
    return texts.fill_null(chr(NOTHING))


def _plain_decimals(texts: pa.Array, scale: int) -> pa.Array:
    """Arrow writes small decimals as 1E-8."""
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    found = [None if t is None else f"{Decimal(t):.{scale}f}" for t in texts.to_pylist()]
    return pa.array(found, pa.string())


def _joined(parts: list[pa.Array], separator: int) -> pa.Array:
    return pc.binary_join_element_wise(*parts, chr(separator))
