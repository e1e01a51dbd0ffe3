"""CSV: lines of cells. A file names its columns in its first line; a message has the declared ones.

The cells themselves are cut by Spark (spark/csv.py).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapeline.books.reasons import worded
from tapeline.declare.format import Format, RecordFile, Row
from tapeline.formats.lines import Lines, split_lines
from tapeline.show import plain

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_BYTES = 16 * 1024  # it is beside every record on the tape


@dataclass(frozen=True)
class Csv(Format):
    """Cells between commas, quoted by RFC 4180."""

    name = "csv"
    text = "csv"
    writes = ("file",)
    grows = True

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        for lines in split_lines(file):
            if file.header is not None:
                yield lines
                continue
            file.header = _header(lines)
            if len(lines) > 1:
                yield lines.between(1, len(lines))

    def encode_file(self, rows: Sequence[Row], schema: pa.Schema) -> bytes:
        """Exact values for programs; `tapeline export` writes CSV for spreadsheets."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            cells = (plain(row.get(name)) for name in names)
            writer.writerow(
                json.dumps(cell, ensure_ascii=False) if isinstance(cell, dict | list) else cell
                for cell in cells
            )
        return out.getvalue().encode()


def _header(lines: Lines) -> bytes:
    """The first line, which names the columns."""
    if 0 in lines.faults:
        raise ValueError(f"its header: {worded(lines.faults[0])}")
    found = bytes(lines.values[: int(lines.lengths[0])])
    if len(found) > HEADER_BYTES:
        raise ValueError(f"its header is {len(found):,} bytes long, the limit is {HEADER_BYTES:,}")
    return found
