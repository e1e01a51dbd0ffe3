"""JSON in which no number can lose a digit.

Spark reads a number with a decimal point or an exponent as a double, also where its text is asked
for: 12345678.90 becomes 1.23456789E7. Such numbers go to Spark in quotes, as texts, and so do lists
and objects that contain one. The tape keeps what came.
"""

from __future__ import annotations

import json
import re
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

# In a string this may match too: then the record is looked at, and stays the same. The quote keeps
# times such as 10:00:00.123 out: looking at a record costs forty times as much as passing it on.
SUSPECT = r'(?:"\s*:|[,\[])\s*-?[0-9]+[.eE]'
MARK = uuid4().hex  # no sender knows it
MARKED = re.compile(rf'"{MARK}([^"]*)"')


class _Number(str):
    """The text of a number."""

    __slots__ = ()


def with_exact_numbers(raws: pa.ChunkedArray) -> pa.ChunkedArray:
    """JSON records with every number that is not whole as a text; others as they are."""
    suspects = pc.fill_null(pc.match_substring_regex(raws, SUSPECT), False)
    if not pc.any(suspects).as_py():
        return raws
    found = [
        exact(raw) if suspect else raw
        for raw, suspect in zip(raws.to_pylist(), suspects.to_pylist(), strict=True)
    ]
    return pa.chunked_array([pa.array(found, pa.binary())])


def exact(raw: bytes) -> bytes:
    """One record; what is not JSON stays as it is, for Spark to say so."""
    try:
        return _exact(raw)
    except (ValueError, RecursionError):
        return raw


def _exact(raw: bytes) -> bytes:
    row = json.loads(raw, parse_float=_Number, parse_constant=_refuse)
    if isinstance(row, dict):
        return _compact({name: _value(value) for name, value in row.items()}).encode()
    return _compact(list(map(_value, row))).encode() if isinstance(row, list) else raw


def _value(value: Any) -> Any:
    if not isinstance(value, dict | list):
        return value
    text = _compact(_marked(value))
    return MARKED.sub(r"\1", text) if MARK in text else value


def _marked(value: Any) -> Any:
    """A value in which numbers can be told from other texts."""
    if isinstance(value, dict):
        return {name: _marked(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(_marked, value))
    return MARK + value if isinstance(value, _Number) else value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_compact = json.JSONEncoder(separators=(",", ":")).encode
