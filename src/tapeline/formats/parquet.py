"""Parquet: files whose rows become JSON lines on the tape; rows of a batch as a Parquet file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from tapeline.declare.format import Format, RecordFile, Row

MAGIC = b"PAR1"


@dataclass(frozen=True)
class Parquet(Format):
    """Parquet files."""

    name = "parquet"
    reads = ("file",)
    writes = ("file",)

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        from tapeline.formats.parquet_rows import json_rows  # few pipelines need what it imports

        with file.open() as opened:
            if opened.read(len(MAGIC)) != MAGIC:
                raise ValueError("it is not a Parquet file, which the source was declared to hold")
            try:
                yield from json_rows(cast(io.RawIOBase, opened), file.limits)
            except (pa.ArrowException, ValueError, OSError) as error:
                raise ValueError(f"its Parquet cannot be read: {error}") from None

    def encode_file(self, rows: Sequence[Row], schema: pa.Schema) -> bytes:
        import pyarrow.parquet as pq

        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {
            name: _column([row.get(name) for row in rows], _type(schema, name)) for name in names
        }
        out = io.BytesIO()
        pq.write_table(pa.table(columns), out)
        return out.getvalue()


def _type(schema: pa.Schema, name: str) -> pa.DataType | None:
    return schema.field(name).type if name in schema.names else None


def _column(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Values in their own type, or in a wider one if a number of this batch outgrew it."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        if kind is None:
            raise
        from tapeline.books.exact import widest

        return pa.array(values, widest(kind))
