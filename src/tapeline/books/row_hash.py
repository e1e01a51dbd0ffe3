"""Proof of rows: one hash for a batch's rows, the same in whatever order they are stored.

The rows are put in the order of their positions (or of all their values), then the SHA-256 runs
over the columns: for every column which values are there, then the values, numbers as they lie in
memory, texts and bytes with their lengths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def hash_of(rows: pa.Table) -> str:
    """The hash of a batch's rows."""
    digest = hashlib.sha256()
    for name, column in zip(rows.column_names, _ordered(rows).columns, strict=True):
        digest.update(name.encode())
        for part in _parts(column.combine_chunks()):
            digest.update(part)
    return digest.hexdigest()[:32]


def _ordered(rows: pa.Table) -> pa.Table:
    """The rows in the one order that follows from what they hold."""
    keys = _places(rows)
    if keys:
        order = np.lexsort(keys[::-1])
        sorted_keys = [key[order] for key in keys]
        same = np.ones(max(0, len(order) - 1), dtype=np.bool_)
        for key in sorted_keys:
            same &= key[1:] == key[:-1]
        if not same.any():
            still = bool((order[1:] > order[:-1]).all())
            return rows if still else rows.take(pa.array(order))
    flat = rows
    while any(pa.types.is_struct(field.type) for field in flat.schema):
        flat = flat.flatten()
    texts = {f"c{n}": _sortable(column) for n, column in enumerate(flat.columns)}
    by = [(name, "ascending") for name in texts]
    return rows.take(pc.sort_indices(pa.table(texts), sort_keys=by))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column by which Arrow can sort: lists and maps as text."""
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return pc.binary_join(column, "\x1e")
    if pa.types.is_nested(kind):
        return pa.array([None if one is None else repr(one) for one in column.to_pylist()])
    return column


def _places(rows: pa.Table) -> list[np.ndarray[Any, Any]]:
    """What orders rows by their place on the tape, if they have one."""
    names = rows.column_names
    if "part" in names and "at" in names:
        return [rows["part"].to_numpy(), rows["at"].to_numpy()]
    if "_position" not in names or not rows.num_rows:
        return []
    position = rows["_position"].combine_chunks()
    source = pc.struct_field(position, "source").dictionary_encode()
    rank = np.argsort(np.argsort(np.array(source.dictionary.to_pylist(), dtype=np.str_)))
    keys = [rank[source.indices.to_numpy()]]
    keys += [
        pc.struct_field(position, f.name).to_numpy() for f in position.type if f.name != "source"
    ]
    return keys + [rows[name].to_numpy() for name in ("_row", "_sign") if name in names]


def _parts(column: pa.Array) -> Iterator[bytes]:
    """The bytes of a column: which values are there, then the values."""
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        kind = column.type
    yield np.packbits(column.is_valid().to_numpy(zero_copy_only=False)).tobytes()
    if pa.types.is_struct(kind):
        for field in kind:
            yield field.name.encode()
            yield from _parts(pc.struct_field(column, field.name))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield _integers(pc.fill_null(pc.list_value_length(column), 0))
        yield from _parts(pc.list_flatten(column))
    elif pa.types.is_decimal(kind):
        wide = column.cast(pa.decimal128(38, kind.scale))
        filled = pc.fill_null(wide, pa.scalar(0, pa.decimal128(38, kind.scale)))
        yield _buffer(filled, 16)
    elif pa.types.is_floating(kind):
        yield pc.fill_null(column, 0).cast(pa.float64()).to_numpy().tobytes()
    elif pa.types.is_timestamp(kind):
        yield _integers(pc.fill_null(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), 0))
    elif pa.types.is_date(kind):
        yield _integers(pc.fill_null(column.cast(pa.date32()).cast(pa.int32()), 0))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        yield _integers(pc.fill_null(column.cast(pa.int64()), 0))
    else:
        data = pc.fill_null(column.cast(pa.binary()), b"")
        yield _integers(pc.binary_length(data))
        yield b"".join(data.to_pylist()) if data.offset else _text(data)


def _integers(values: pa.Array) -> bytes:
    numbers: np.ndarray[Any, Any] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers.tobytes()


def _buffer(values: pa.Array, width: int) -> bytes:
    start = values.offset * width
    return bytes(memoryview(values.buffers()[1])[start : start + len(values) * width])


def _text(data: pa.Array) -> bytes:
    """The values of a binary column, one after the other."""
    _, offsets, values = data.buffers()
    if values is None or not len(data):
        return b""
    ends = np.frombuffer(offsets, dtype=np.int32)
    return bytes(memoryview(values)[ends[0] : ends[len(data)]])
