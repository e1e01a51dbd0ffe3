"""CSV: lines of cells. A file names its columns in its first line, unless it has no header.

Without a header, and in messages, the columns are the declared ones. The cells themselves are cut
by Spark (spark/csv.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tapeline.books.reasons import worded
from tapeline.declare.format import Carrier, Format, RecordFile, Row
from tapeline.errors import DeclarationError
from tapeline.formats.encodings import UTF8, encoding_of, ends_lines_like_ascii
from tapeline.formats.json import json_value
from tapeline.formats.lines import Lines, split_lines
from tapeline.show import plain

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_BYTES = 16 * 1024  # it is beside every record on the tape
EXAMPLES = {"separator": "separator=';'", "quote": 'quote="\'", or quote=None'}


@dataclass(frozen=True)
class Csv(Format):
    """Lines of cells, quoted by RFC 4180.

    Without a `header` the columns are the declared ones, in their order. `quote` is None where
    quotes are ordinary characters. An empty cell is null, and so is a cell that is one of the words
    in `nulls`. A line that begins with `comment` is left out. `encoding` is that of files.
    """

    header: bool = True
    separator: str = ","
    quote: str | None = '"'
    nulls: Sequence[str] = ()
    comment: str | None = None
    encoding: str = UTF8
    name = "csv"
    text = "csv"

    def __post_init__(self) -> None:
        if isinstance(self.nulls, str):
            raise DeclarationError(f"Csv: nulls is a list of words. Write nulls=({self.nulls!r},).")
        object.__setattr__(self, "nulls", tuple(self.nulls))
        object.__setattr__(self, "encoding", encoding_of("Csv", self.encoding))
        for option, said in (("separator", self.separator), ("quote", self.quote)):
            if said is not None and (len(said) != 1 or said in "\r\n\0"):
                raise DeclarationError(
                    f"Csv: {option}={said!r} is not one character. Write for example "
                    f"{EXAMPLES[option]}."
                )
        if self.separator == self.quote:
            raise DeclarationError(
                f"Csv: {self.separator!r} cannot be the separator and the quote. Change one."
            )
        if self.comment is not None and (not self.comment or set(self.comment) & set("\r\n")):
            raise DeclarationError(
                f"Csv: comment={self.comment!r} is not how a line can begin. Write for example "
                "comment='#'."
            )

    @property
    def writes(self) -> tuple[Carrier, ...]:  # type: ignore[override]
        """A sink writes what this format reads back."""
        readable = self.quote and self.comment is None and self.encoding == UTF8
        return ("file",) if readable else ()

    @property
    def reads(self) -> tuple[Carrier, ...]:  # type: ignore[override]
        return ("file", "message") if self.encoding == UTF8 else ("file",)

    @property
    def grows(self) -> bool:  # type: ignore[override]
        return ends_lines_like_ascii(self.encoding)

    @property
    def meaning(self) -> Mapping[str, Any]:
        """The tape has no comments and is UTF-8: how they were written does not matter there."""
        said = {"header": self.header, "separator": self.separator, "quote": self.quote}
        found = {option: value for option, value in said.items() if value != getattr(Csv, option)}
        if self.nulls:
            found["nulls"] = sorted(set(self.nulls))
        return {"format": self.name, **found}

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        for lines in self._lines(file):
            if file.header is not None or not self.header:
                yield lines
                continue
            file.header = _header(lines)
            if len(lines) > 1:
                yield lines.between(1, len(lines))

    def _lines(self, file: RecordFile) -> Iterator[Lines]:
        for lines in split_lines(file):
            kept = lines.without(self.comment.encode()) if self.comment else lines
            if len(kept):
                yield kept

    def encode_file(self, rows: Sequence[Row], schema: pa.Schema) -> bytes:
        """Exact values for programs; `tapeline export` writes CSV for spreadsheets."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        out = io.StringIO()
        writer = csv.writer(
            out, delimiter=self.separator, quotechar=self.quote, lineterminator="\n"
        )
        if self.header:
            writer.writerow(names)
        for row in rows:
            cells = (plain(row.get(name)) for name in names)
            writer.writerow(
                json_value(cell).decode() if isinstance(cell, dict | list) else cell
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
