"""JSON: one object per line or message, or the records of a document; rows as objects, exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tapeline.declare.format import Carrier, Format, RecordFile, Row
from tapeline.errors import DeclarationError, OperationError
from tapeline.formats.encodings import UTF8, encoding_of, ends_lines_like_ascii
from tapeline.formats.json_document import document_records
from tapeline.formats.json_line import RowWriter
from tapeline.formats.lines import split_lines
from tapeline.show import plain


@dataclass(frozen=True)
class Json(Format):
    """One JSON object per line or message.

    With `document` a file is one JSON document: a list of records, or one record. `records` is the
    path of names to that list, as in "result.trades". With `positional` a record is a list, whose
    values are the declared columns in their order. `encoding` is that of files.
    """

    document: bool = False
    records: str | None = None
    positional: bool = False
    encoding: str = UTF8
    name = "json"
    quotes_texts = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", encoding_of("Json", self.encoding))
        if self.records is not None and not all(self.records.split(".")):
            raise DeclarationError(
                f"Json: records={self.records!r} is not a path. Write names with dots between "
                "them, such as records='result.trades'; for a file that is a list, document=True."
            )

    @property
    def in_lines(self) -> bool:
        """Whether each line of a file is a record."""
        return not self.document and self.records is None

    @property
    def file_suffix(self) -> str:
        return "jsonl" if self.in_lines else self.name

    @property
    def reads(self) -> tuple[Carrier, ...]:  # type: ignore[override]
        return ("file", "message") if self.in_lines and self.encoding == UTF8 else ("file",)

    @property
    def writes(self) -> tuple[Carrier, ...]:  # type: ignore[override]
        return ("file", "message") if self.takes_json_lines else ()

    @property
    def grows(self) -> bool:  # type: ignore[override]
        return self.in_lines and ends_lines_like_ascii(self.encoding)

    @property
    def takes_json_lines(self) -> bool:  # type: ignore[override]
        return self.in_lines and not self.positional and self.encoding == UTF8

    @property
    def meaning(self) -> Mapping[str, Any]:
        """Where records are in a file does not matter once they are on the tape."""
        return {"format": self.name, **({"positional": True} if self.positional else {})}

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        if self.in_lines:
            return split_lines(file)
        return document_records(file, self.records.split(".") if self.records else [])

    def encode(self, row: Row) -> bytes:
        """One row as JSON: money is text, times are in UTC."""
        return json_value(row)


def _leaf(value: Any) -> Any:
    said = plain(value)
    if said is value:
        raise OperationError(
            f"JSON: a row contains a {type(value).__name__}, which JSON does not support. Convert "
            "it in the sink's function."
        )
    return said


# A value as sinks write it: by the same rules as commands and the API.
json_value = RowWriter(_leaf)
