"""Text: a line or message is one value, as it came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tapeline.declare.format import Carrier, Format, RecordFile
from tapeline.declare.schema import Field
from tapeline.formats.encodings import UTF8, encoding_of, ends_lines_like_ascii
from tapeline.formats.lines import split_lines


@dataclass(frozen=True)
class Text(Format):
    """Lines of text in the column `value`. `encoding` is that of files."""

    encoding: str = UTF8
    name = "text"
    text = "line"
    columns = (Field("value", "string"),)

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", encoding_of("Text", self.encoding))

    @property
    def reads(self) -> tuple[Carrier, ...]:  # type: ignore[override]
        return ("file", "message") if self.encoding == UTF8 else ("file",)

    @property
    def grows(self) -> bool:  # type: ignore[override]
        return ends_lines_like_ascii(self.encoding)

    @property
    def takes_json_lines(self) -> bool:  # type: ignore[override]
        return self.encoding == UTF8

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        return split_lines(file)
