"""JSON in which no number can lose a digit.

Spark makes a double of a number with a decimal point or an exponent before anybody sees its text:
12345678.90 becomes 1.23456789E7, and digits after the 17th are lost. So such numbers go to Spark in
quotes, as texts. The tape keeps what came.

Two ways, chosen by what is in the record:

- A double would change one of its numbers: each number gets quotes where it is, at every depth.
- Otherwise numbers of the record itself become texts, and so do lists and objects that contain one:
  where such a value is declared as a string, its text is as it came.
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
# Numbers that a double may write otherwise: from 10^7, below 0.001, long ones, with an exponent.
# Whatever it matches is suspect, too.
CHANGED = r'(?:"\s*:|[\[,])\s*-?(\d{8,}\.\d|0\.000|\d{1,7}\.\d{9}|\d+(\.\d+)?[eE])'
# A text, which may not end; or a number.
TOKEN = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?',
    re.DOTALL,
)
FLOAT = re.compile(rb"[.eE]")
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
    found = raws.filter(suspects)
    changed = pc.match_substring_regex(found, CHANGED)
    texts = [
        quote(raw) if one else exact(raw)
        for raw, one in zip(found.to_pylist(), changed.to_pylist(), strict=True)
    ]
    return pc.replace_with_mask(
        raws.combine_chunks(), suspects.combine_chunks(), pa.array(texts, raws.type)
    )


def quote(record: bytes) -> bytes:
    """JSON with quotes around its fractions; what is no JSON stays as it is, or none."""
    return TOKEN.sub(_quoted, record)


def _quoted(found: re.Match[bytes]) -> bytes:
    token = found[0]
    if token.startswith(b'"') or not FLOAT.search(token):
        return token
    return b'"' + token + b'"'


def exact(raw: bytes) -> bytes:
    """A record with its fractions as texts; what is not JSON stays as it is, for Spark to say."""
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
