"""Text: a line or message is one value, as it came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tapeline.declare.format import Format, RecordFile
from tapeline.declare.schema import Field
from tapeline.formats.lines import split_lines


@dataclass(frozen=True)
class Text(Format):
    """Lines of text in the column `value`."""

    name = "text"
    text = "line"
    columns = (Field("value", "string"),)
    grows = True
    takes_json_lines = True

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        return split_lines(file)
