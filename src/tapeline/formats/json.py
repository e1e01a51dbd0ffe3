"""JSON: one object per line or message; rows as objects, exact."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tapeline.declare.format import Format, RecordFile, Row
from tapeline.errors import OperationError
from tapeline.formats.lines import split_lines
from tapeline.show import plain


@dataclass(frozen=True)
class Json(Format):
    """One JSON object per line or message."""

    name = "json"
    writes = ("file", "message")
    grows = True
    takes_json_lines = True

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        return split_lines(file)

    def encode(self, row: Row) -> bytes:
        """One row as JSON: money is text, times are in UTC."""
        return ENCODER.encode(row).encode()


def _leaf(value: Any) -> Any:
    said = plain(value)
    if said is value:
        raise OperationError(
            f"JSON: a row contains a {type(value).__name__}, which JSON does not support. Convert "
            "it in the sink's function."
        )
    return said


ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_leaf)
