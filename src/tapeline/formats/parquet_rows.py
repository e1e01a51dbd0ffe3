"""The rows of a Parquet file as JSON lines, exact: no number or time is rounded on the way."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tapeline.declare.format import FileLimits
from tapeline.formats.arrow_sizes import Sizes, is_text, sizes_of
from tapeline.formats.json_line import json_line
from tapeline.formats.parquet_pages import FOOTER_BYTES, check_footer, plan_reading

BUFFER_BYTES = 256 * 1024

# Of the bytes that may be decoded at once, a quarter is text: Python and JSON copy it.
SHARE = 4
LEAF_BYTES = 40  # of a value as an object of Python's, beside its own bytes
CONTAINERS = 100_000  # entries in a list of the footer: columns, row groups


def json_rows(file: io.RawIOBase, bounds: FileLimits) -> Iterator[list[bytes]]:
    """Each row as one JSON object, some rows at a time, in the order of the file.

    Decimals, dates and times are strings, instants in UTC end in Z, binary is base64, NaN and the
    infinities are strings. Raises ValueError or OSError when the file is not sound, or becomes more
    than it may.
    """
    check_footer(file)
    parquet = pq.ParquetFile(file, **_limits())
    names = parquet.schema_arrow.names
    if len(set(names)) < len(names):
        raise ValueError("two of its columns have the same name")
    plan = plan_reading(file, parquet, bounds)
    parquet = pq.ParquetFile(
        file, read_dictionary=plan.texts, buffer_size=BUFFER_BYTES, **_limits()
    )
    made = 0
    for batch in parquet.iter_batches(batch_size=plan.rows_at_once, use_threads=False):
        # Arrow does not look whether a place in a dictionary is inside it, unless it is asked to.
        batch.validate(full=True)
        # It is known how much the rows would be before they are.
        costs = sizes_of(batch, LEAF_BYTES)
        if made + int(costs.sum()) > bounds.unpacked_bytes:
            _refuse_above(made + int(sizes_of(batch, 0).sum()), bounds)
        for some in _slices(batch, costs, bounds.bytes_at_once):
            rows = json_of(some)
            made += sum(map(len, rows))
            _refuse_above(made, bounds)
            yield rows


def _limits() -> dict[str, int]:
    return {"thrift_string_size_limit": FOOTER_BYTES, "thrift_container_size_limit": CONTAINERS}


def _refuse_above(made: int, bounds: FileLimits) -> None:
    if made > bounds.unpacked_bytes:
        raise ValueError(
            f"its rows are more than {bounds.unpacked_bytes:,} bytes, the limit for its size"
        )


def _slices(batch: Any, costs: Sizes, bytes_at_once: int) -> Iterator[Any]:
    """The rows of a batch, as many at a time as may be decoded at once."""
    ends = np.cumsum(costs)
    first = before = 0
    while first < len(ends):
        last = int(np.searchsorted(ends, before + bytes_at_once // SHARE, side="right"))
        last = max(last, first + 1)
        size = int(ends[last - 1]) - before
        if size > bytes_at_once:
            raise ValueError(f"a row takes {size:,} bytes decoded, the limit is {bytes_at_once:,}")
        yield batch.slice(first, last - first)
        first, before = last, int(ends[last - 1])


def json_of(batch: Any) -> list[bytes]:
    """The rows of an Arrow batch, by the rules of `json_rows`."""
    # Two casts: Arrow writes an instant in its own zone, so it has to be UTC before it is text.
    plain = [column.cast(_mapped(column.type, _plain)) for column in map(_whole, batch.columns)]
    texts = [column.cast(_mapped(column.type, _text)) for column in plain]
    return [
        json_line(row)
        for row in pa.Table.from_arrays(texts, names=batch.schema.names).to_pylist(
            maps_as_pydicts="lossy"
        )
    ]


def _whole(column: Any) -> Any:
    """A column of texts, decoded; one of lists keeps them, or all of the batch would be decoded."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


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
    if pa.types.is_dictionary(kind) and not is_text(kind.value_type):
        return kind.value_type
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _text(kind: Any) -> Any:
    # Python's own times hold microseconds; Arrow's text holds whatever the file holds.
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.string()
    return pa.int64() if pa.types.is_duration(kind) else kind
