"""A format: how the records of a source are written, and the rows that a sink sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, runtime_checkable

from tapeline.declare.schema import Field
from tapeline.errors import OperationError

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
# What a decoded record is for Spark: a JSON object, a line of CSV, or a line that stays one text.
Text = Literal["json", "csv", "line"]
Carrier = Literal["file", "message"]


@dataclass(frozen=True)
class FileLimits:
    """The limits of one file: bytes in all, bytes in memory at once, and rows."""

    unpacked_bytes: int
    bytes_at_once: int
    rows: int


class RecordFile(Protocol):
    """A file that was delivered, as a format reads it.

    `header` goes beside every record of the file on the tape, and to `decode`; a format sets it
    before it gives out the first records. `lines_before` counts the lines of this file that
    earlier deliveries had.
    """

    header: bytes | None

    @property
    def lines_before(self) -> int: ...

    @property
    def record_bytes(self) -> int:
        """The longest record that the tape takes; the rest of a longer one is cut off."""

    @property
    def limits(self) -> FileLimits:
        """What this file may become."""

    def chunks(self) -> Iterator[bytes]:
        """The content, some bytes at a time: unpacked, without a byte order mark."""

    def open(self) -> BinaryIO:
        """The file as it was delivered, for formats that must seek."""

    def keep(self, text: bytes) -> bytes:
        """Store a text that records need, such as their schema; returns its name."""


class Schemas(Protocol):
    """Finds the schema that a record was written with."""

    def begin(self) -> None:
        """Look again for schemas that were not found before."""

    def split(self, raw: bytes, header: bytes | None) -> tuple[str, bytes]:
        """The text of a record's schema, and its own bytes. Raises ValueError without a schema."""


class RecordSource(Protocol):
    """The source whose records a format decodes."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The declared columns."""

    @property
    def messages(self) -> bool:
        """Whether records come one by one, not in files."""

    def schemas(self) -> Schemas:
        """Where the schemas are that records were written with."""


@runtime_checkable
class Format(Protocol):
    """How records are written. Subclass it and write `split` and `decode`, or `encode`, or all.

    Everything else has a default. A format keeps nothing between records.
    """

    name: str  # in a plan, in errors, and as the ending of a sink's files
    text: Text = "json"  # what `decode` makes of a record
    columns: tuple[Field, ...] | None = None  # a format's own columns, instead of a schema
    reads: tuple[Carrier, ...] = ("file", "message")
    writes: tuple[Carrier, ...] = ()  # ("file", "message") for a format that has `encode`
    grows: bool = False  # what is appended to a file continues it, line by line
    encoding: str = "utf-8"  # of a file's text; a format is given it as UTF-8
    unpacks: bool = True  # a zip or tar archive holds files of this format
    takes_json_lines: bool = False  # a pull writes such lines into the drop folder of a source
    retypes: bool = False  # `decode` may say in `_retyped` that fields came as another type
    warns: bool = False  # `decode` may say in `_warned` what is wrong and counts all the same
    extra: str = ""  # the extra of Tapeline's package that has to be installed for it
    quotes_texts: bool = False  # texts are in quotes and numbers are not: "007" is no number

    @property
    def file_suffix(self) -> str:
        """How the name of a file ends that somebody else writes in this format."""
        return self.name

    @property
    def meaning(self) -> Mapping[str, Any]:
        """What of the format belongs to the fingerprint of the steps that read it."""
        return {"format": self.name}

    @property
    def decodes(self) -> bool:
        """Whether records differ from what Spark reads, so that `decode` must be called."""
        return type(self).decode is not Format.decode

    def for_source(self, source: RecordSource) -> Format:
        """This format, ready to decode the records of a source."""
        return self

    def for_sink(self, project: Path, schemas: str | None) -> Format:
        """This format, ready to encode rows; `schemas` is as for Kafka."""
        return self

    def begin_batch(self) -> None:
        """A batch of records is decoded next."""
        return

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        """The records of a file, some at a time. Raises ValueError if the file is not sound."""
        raise OperationError(f"format '{self.name}' does not read files.")

    def decode(self, raw: bytes, header: bytes | None) -> bytes:
        """One record as `text`, UTF-8. Raises ValueError that says what is wrong with it."""
        return raw

    def encode(self, row: Row) -> bytes:
        """One row as a message. Raises OperationError if the row does not fit."""
        raise OperationError(f"format '{self.name}' does not write rows.")

    def encode_file(self, rows: Sequence[Row], schema: pa.Schema) -> bytes:
        """The rows of a batch as a file. `schema` has the types of columns of the books."""
        return b"".join(self.encode(row) + b"\n" for row in rows)
