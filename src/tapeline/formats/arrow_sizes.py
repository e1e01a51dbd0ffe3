"""How many bytes rows of Arrow's would take once they are decoded, without decoding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

Sizes: TypeAlias = "NDArray[np.int64]"


def is_text(kind: Any) -> bool:
    """Whether values of a type have a length of their own."""
    kinds = pa.types
    return bool(
        kinds.is_string(kind)
        or kinds.is_binary(kind)
        or kinds.is_large_string(kind)
        or kinds.is_large_binary(kind)
    )


def sizes_of(batch: Any, each: int) -> Sizes:
    """For each row: the bytes of its texts, 1 for any other value, and `each` for every value."""
    total: Sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        total += _sizes(column, each)
    return total


def _sizes(array: Any, each: int) -> Sizes:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _sizes(array.storage, each)
    if pa.types.is_dictionary(kind):
        return _of_dictionary(array, each)
    if is_text(kind):
        import pyarrow.compute as pc

        return _filled(pc.binary_length(array)) + each
    if pa.types.is_struct(kind):
        found: Sizes = np.full(len(array), each, np.int64)
        for child in array.flatten():
            found += _sizes(child, each)
        return found
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        ends: Sizes = np.concatenate([np.zeros(1, np.int64), np.cumsum(_sizes(array.values, each))])
        offsets: Sizes = np.asarray(array.offsets).astype(np.int64)
        inside: Sizes = ends[offsets[1:]] - ends[offsets[:-1]]
        return inside + each
    if pa.types.is_fixed_size_list(kind):
        first, wide = array.offset * kind.list_size, len(array) * kind.list_size
        inner = _sizes(array.values.slice(first, wide), each)
        added: Sizes = inner.reshape(len(array), kind.list_size).sum(axis=1)
        return added + each
    if pa.types.is_fixed_size_binary(kind):
        return np.full(len(array), kind.byte_width + each, np.int64)
    if pa.types.is_null(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return np.full(len(array), 1 + each, np.int64)
    raise ValueError(f"a column is of type {kind}, which has no JSON form")


def _of_dictionary(array: Any, each: int) -> Sizes:
    lengths = np.append(_sizes(array.dictionary, each), each)  # the last one is for nulls
    places = _filled(array.indices, len(lengths) - 1)
    found: Sizes = lengths[places]
    return found


def _filled(numbers: Any, instead: int = 0) -> Sizes:
    """Numbers as numpy has them, with another in the place of nulls."""
    import pyarrow.compute as pc

    whole = pc.fill_null(numbers.cast(pa.int64()), instead)
    return np.asarray(whole)
