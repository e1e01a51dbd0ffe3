"""The rows of a Parquet file as JSON lines, exact: no number or time is rounded on the way."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterator
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_AT_ONCE = 1_000


def json_rows(file: io.RawIOBase, unpacked_bytes_limit: int) -> Iterator[list[bytes]]:
    """Each row as one JSON object, some rows at a time, in the order of the file.

    Decimals, dates and times are strings, instants in UTC end in Z, binary is base64, NaN and the
    infinities are strings. Raises ValueError or OSError when the file is not sound.
    """
    parquet = pq.ParquetFile(file)
    groups = range(parquet.metadata.num_row_groups)
    unpacked = sum(parquet.metadata.row_group(group).total_byte_size for group in groups)
    if unpacked > unpacked_bytes_limit:
        raise ValueError(f"it unpacks to {unpacked:,} bytes, the limit is {unpacked_bytes_limit:,}")
    names = parquet.schema_arrow.names
    if len(set(names)) < len(names):
        raise ValueError("two of its columns have the same name")
    for batch in parquet.iter_batches(batch_size=ROWS_AT_ONCE):
        # Two casts: Arrow writes an instant in its own zone, so it has to be UTC before it is text.
        plain = [column.cast(_mapped(column.type, _plain)) for column in batch.columns]
        texts = [column.cast(_mapped(column.type, _text)) for column in plain]
        yield [json_line(row) for row in pa.Table.from_arrays(texts, names=names).to_pylist()]


def _mapped(kind: Any, leaf: Callable[[Any], Any]) -> Any:
    """An Arrow type with its innermost types replaced."""
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(field.name, _mapped(field.type, leaf)) for field in fields])
    if pa.types.is_map(kind):
        return pa.map_(_mapped(kind.key_type, leaf), _mapped(kind.item_type, leaf))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_mapped(kind.value_type, leaf))
    return leaf(kind)


def _plain(kind: Any) -> Any:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _text(kind: Any) -> Any:
    # Python's own times hold microseconds; Arrow's text holds whatever the file holds.
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.string()
    return pa.int64() if pa.types.is_duration(kind) else kind


def json_line(row: dict[str, Any]) -> bytes:
    """A row as one JSON object, by the rules of `json_rows`."""
    try:
        text = _dumps(row)
    except ValueError:
        text = _dumps(_spelt(row))
    return text.encode("utf-8")


def _dumps(row: Any) -> str:
    return json.dumps(
        row, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_value
    )


def _value(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise ValueError(f"a value of type {type(value).__name__} has no JSON form")


def _spelt(value: Any) -> Any:
    """A value with its NaN and infinities, which JSON does not have, as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _spelt(item) for key, item in value.items()}
    return [_spelt(item) for item in value] if isinstance(value, list | tuple) else value
