"""A row as one line of JSON: the one writer, for what goes to Spark and for what goes to a sink.

Digits, times and bytes are exact: what JSON has no form for is text. NaN and the infinities are
"nan", "inf" and "-inf".
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID


class RowWriter:
    """Writes rows. `leaf` gives the text of a value that JSON has no form for, or raises."""

    def __init__(self, leaf: Callable[[Any], Any]) -> None:
        self._text = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=leaf
        ).encode

    def __call__(self, row: Any) -> bytes:
        """One row, or one value of it. Half of a character is written as it came."""
        try:
            text = self._text(row)
        except ValueError:
            text = self._text(_spelt(row))
        return text.encode("utf-8", "surrogatepass")


def exact_text(value: Any) -> str:
    """Decimals with all digits, dates and times in ISO 8601, bytes as base64."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    raise ValueError(f"a value of type {type(value).__name__} has no JSON form")


# A record on its way to Spark, which reads exactly these texts back.
json_line = RowWriter(exact_text)


def _spelt(value: Any) -> Any:
    """A value with its NaN and infinities, which JSON does not have, as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _spelt(item) for key, item in value.items()}
    return [_spelt(item) for item in value] if isinstance(value, list | tuple) else value
