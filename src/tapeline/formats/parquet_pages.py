"""The pages of a Parquet file, looked at before Arrow takes memory for them.

Arrow believes what a file says of its own sizes. The footer and the header of every page are read
here first, in bounded memory, and a file that would take too much is refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tapeline.declare.format import FileLimits
from tapeline.formats.limits import MIB
from tapeline.formats.thrift import read_struct

MARK = b"PAR1"
FOOTER_BYTES = 16 * MIB
HEADER_BYTES = (4 * 1024, MIB)  # of a page: most fit into the first, none may be above the last
ROWS_AT_ONCE = 5_000
# Of each column one page and its dictionary are in memory at a time: so many times the bytes that
# may be decoded at once are allowed for all of them, and for the lists of one row group.
HELD = 4
LEVEL_BYTES = 4  # of each value of a list: where it begins, and how deep it is
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
INDEX_BYTES = 4  # of a text that is read as a place in its dictionary
TEXTS = ("NONE", "STRING", "ENUM", "JSON", "BSON")
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 6, 7  # Arrow reads neither as places in a dictionary
NO_DICTIONARY = {DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY}


@dataclass(frozen=True)
class Chunk:
    """What the pages of one column of one row group say."""

    values: int
    unpacked: int
    largest: int
    dictionary: int
    fewest: int  # values in a page; the last page aside
    encodings: frozenset[int | None]


def check_footer(file: io.RawIOBase) -> None:
    """Refuse a footer that is too long to be read whole."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 8))
    tail = file.read(8) or b""
    if size < 12 or tail[4:] != MARK:
        raise ValueError("it does not end as Parquet files do")
    length = int.from_bytes(tail[:4], "little")
    if length > min(size - 12, FOOTER_BYTES):
        raise ValueError(f"its footer is {length:,} bytes long, the limit is {FOOTER_BYTES:,}")
    file.seek(0)


@dataclass(frozen=True)
class PageReader:
    """How a file is read within its bounds: rows at a time, and the columns to read as text.

    A text is read as a place in a dictionary: a value that repeats is in memory once.
    """

    rows_at_once: int
    texts: list[str]


def plan_reading(file: io.RawIOBase, parquet: Any, bounds: FileLimits) -> PageReader:
    """How to read a file. Raises ValueError for one that is too much."""
    metadata, schema = parquet.metadata, parquet.schema
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    _refuse_above("rows", rows, bounds.rows)
    least = rows * _least_bytes(parquet.schema_arrow.names)
    _refuse_above(f"bytes in its {rows:,} rows, at least", least, bounds.unpacked_bytes)
    size = file.seek(0, io.SEEK_END)
    packed = sum(
        group.column(c).total_compressed_size for group in groups for c in range(group.num_columns)
    )
    _refuse_above("bytes in its columns", packed, size)  # or some of them are the same bytes
    columns = [schema.column(place) for place in range(len(schema))]
    texts = {column.path for column in columns if _is_text(column)}
    unpacked = listed = 0
    most = ROWS_AT_ONCE
    for group in groups:
        chunks = [_chunk(file, group.column(c), bounds) for c in range(group.num_columns)]
        unpacked += sum(chunk.unpacked for chunk in chunks)
        _refuse_above("bytes unpacked", unpacked, bounds.unpacked_bytes)
        pairs = list(zip(columns, chunks, strict=True))
        texts -= {column.path for column, chunk in pairs if chunk.encodings & NO_DICTIONARY}
        width, values, lists = _row_bytes(pairs, group.num_rows)
        listed += values
        _refuse_above("bytes in lists at once", lists, HELD * bounds.bytes_at_once)
        _refuse_above("bytes in a row", width, bounds.bytes_at_once)
        most = min(most, bounds.bytes_at_once // max(1, width), _rows_in_pages(chunks, bounds))
    # As JSON each value of a list is followed by a comma or a bracket.
    _refuse_above("bytes in its lists, at least", 2 * listed, bounds.unpacked_bytes)
    return PageReader(max(1, most), sorted(texts))


def _is_text(column: Any) -> bool:
    return column.physical_type == "BYTE_ARRAY" and column.logical_type.type in TEXTS


def _rows_in_pages(chunks: list[Chunk], bounds: FileLimits) -> int:
    """The number of rows whose pages fit into memory. Refuses pages that never do."""
    held = sum(chunk.largest + chunk.dictionary for chunk in chunks)
    most = HELD * bounds.bytes_at_once
    _refuse_above("bytes in pages at once", held, most)
    fewest = min((chunk.fewest for chunk in chunks), default=ROWS_AT_ONCE)
    return fewest * max(1, most // max(1, held) - 2)


def _least_bytes(names: list[str]) -> int:
    """The bytes that a row takes as JSON, at least: its names, and a character for each value."""
    return 1 + sum(len(name.encode("utf-8", "replace")) + 5 for name in names)


def _refuse_above(what: str, found: int, limit: int) -> None:
    if found > limit:
        raise ValueError(f"it has {found:,} {what}, the limit is {limit:,}")


def _row_bytes(columns: list[tuple[Any, Chunk]], rows: int) -> tuple[int, int, int]:
    """What a row takes decoded, at most; and the values of all lists, with their bytes."""
    width = listed = lists = 0
    for column, chunk in columns:
        each = _value_bytes(column, chunk)
        if column.max_repetition_level:
            # All values of a row group may be in a list of its first row.
            listed += chunk.values
            lists += chunk.values * (each + LEVEL_BYTES) + chunk.unpacked
        elif chunk.values != rows:
            raise ValueError(f"column '{column.path}' has {chunk.values:,} values in {rows:,} rows")
        else:
            width += each
    return width + lists // max(1, rows), listed, lists


def _value_bytes(column: Any, chunk: Chunk) -> int:
    kind = column.physical_type
    each = column.length if kind == "FIXED_LEN_BYTE_ARRAY" else WIDTHS.get(kind, INDEX_BYTES)
    if kind != "BYTE_ARRAY":
        return int(each)
    if DELTA_BYTE_ARRAY in chunk.encodings:
        return max(each, chunk.largest)  # a value may repeat all of the one before it
    if not _is_text(column):
        return max(each, chunk.dictionary)  # decoded value by value
    return int(each)


def _chunk(file: io.RawIOBase, column: Any, bounds: FileLimits) -> Chunk:
    values = unpacked = largest = dictionary = last = 0
    fewest = ROWS_AT_ONCE
    encodings = set()
    for kind, size, count, encoding in _pages(file, column, bounds.bytes_at_once):
        unpacked += size
        if kind == DICTIONARY:
            dictionary = max(dictionary, size)
            continue
        fewest = min(fewest, last or fewest)
        values, largest, last = values + count, max(largest, size), count
        encodings.add(encoding)
    if values != column.num_values:
        raise ValueError(f"the pages of '{column.path_in_schema}' do not hold what its footer says")
    return Chunk(values, unpacked, largest, dictionary, fewest, frozenset(encodings))


def _pages(
    file: io.RawIOBase, column: Any, limit: int
) -> Iterator[tuple[int, int, int, int | None]]:
    """Kind, unpacked size, number of values and encoding of each page."""
    at = column.data_page_offset
    first = column.dictionary_page_offset
    if first and 0 < first < at:
        at = first
    end = at + column.total_compressed_size
    while at < end:
        header, own = _header(file, at)
        sizes = [header.get(place) for place in (1, 2, 3)]
        known = [size for size in sizes if isinstance(size, int) and size >= 0]
        if len(known) < len(sizes):
            raise ValueError("a page has no size")
        kind, unpacked, packed = known
        _refuse_above("bytes in a page", max(unpacked, packed), limit)
        facts = header.get({DATA: 5, DICTIONARY: 7, DATA_V2: 8}.get(kind, 0), {})
        count = facts.get(1, 0) if isinstance(facts, dict) else None
        if not isinstance(count, int) or count < 0:
            raise ValueError("a page has no number of values")
        yield kind, unpacked, count, facts.get(4 if kind == DATA_V2 else 2)
        at += own + packed


def _header(file: io.RawIOBase, at: int) -> tuple[dict[int, Any], int]:
    for size in HEADER_BYTES:
        file.seek(at)
        found = file.read(size) or b""
        try:
            return read_struct(found)
        except EOFError:
            if len(found) < size:
                break
    raise ValueError("the header of a page is cut off, or too long")
