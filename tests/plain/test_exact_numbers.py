"""Numbers without quotes keep their digits on the way to Spark; nothing else changes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.formats.exact_json import exact, quote, with_exact_numbers

NUMBERS = st.builds(
    lambda sign, front, back, exponent: f"{sign}{front}{back}{exponent}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**25).map(str),
    st.text("0123456789", min_size=1, max_size=25).map(lambda digits: f".{digits}") | st.just(""),
    st.just("") | st.integers(-30, 30).map(lambda number: f"e{number:+}"),
)
TEXTS = st.text(max_size=20).filter(lambda text: "@" not in text)
# In its place stands a number, so that Python's own writing of numbers is not in the way.
HOLES = st.integers(0, 10**6).map(lambda number: f"@{number}@")
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | TEXTS | HOLES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner),
    max_leaves=10,
)


def with_numbers(document: Any, number: str) -> str:
    text = json.dumps(document, ensure_ascii=False)
    parts = text.split('"@')
    return parts[0] + "".join(number + part.partition('@"')[2] for part in parts[1:])


def leaf(value: Any, other: Any) -> bool:
    """Whether two values are the same, a number in quotes being the number."""
    if isinstance(value, Decimal) and isinstance(other, str):
        return value == Decimal(other)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(leaf, value, other))
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(leaf(value[k], other[k]) for k in value)
    return bool(value == other)


@settings(deadline=None, max_examples=300)
@given(DOCUMENTS, NUMBERS)
def test_every_digit_of_a_number_is_kept_and_texts_stay(document: Any, number: str) -> None:
    record = with_numbers({"a": document}, number)
    found = json.loads(quote(record.encode()), parse_float=pytest.fail)
    assert leaf(json.loads(record, parse_float=Decimal), found)


@settings(deadline=None, max_examples=300)
@given(NUMBERS)
def test_whatever_a_double_would_change_is_noticed(number: str) -> None:
    rows = pa.chunked_array([pa.array([f'{{"a": {number}}}'.encode(), None], pa.binary())])
    raw = with_exact_numbers(rows)[0].as_py()
    if raw.endswith(b'"}') and raw != exact(rows[0].as_py()):
        return  # it has its quotes where it is
    value = float(number)
    plain = value == 0 or 1e-3 <= abs(value) < 1e7  # as Java writes it
    whole = not set(number) & set(".e")
    assert whole or (plain and Decimal(repr(value)) == Decimal(number))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"a": 100000000.12}', b'{"a": "100000000.12"}'),
        (b'{"a": 1.5e3, "b": -1E-7}', b'{"a": "1.5e3", "b": "-1E-7"}'),
        (b'{"a": 1e-999999999}', b'{"a": "1e-999999999"}'),
        (b'{"a": 12345678901234567890}', b'{"a": 12345678901234567890}'),
        (b'{"a": "x: 100000000.12", "b\\"1.5": 1}', b'{"a": "x: 100000000.12", "b\\"1.5": 1}'),
        (b'{"a": 01.5}', b'{"a": 0"1.5"}'),  # no JSON before, and none after
        (b'{"a": "1.5', b'{"a": "1.5'),
        (b'{"a": "1.5\\', b'{"a": "1.5\\'),
    ],
)
def test_what_becomes_of_a_record(record: bytes, expected: bytes) -> None:
    assert quote(record) == expected


def test_a_hostile_text_is_read_once() -> None:
    hostile = b'{"a": 100000000.5, "b": ' + b'"\\"' * 200_000
    assert quote(hostile) == hostile.replace(b"100000000.5", b'"100000000.5"')


def test_rows_without_such_numbers_are_not_touched() -> None:
    rows = pa.chunked_array([pa.array([b'{"a": "12.50", "b": 1762000000000000}'], pa.binary())])
    assert with_exact_numbers(rows) is rows
    plain = b'{"a": 12.50, "b": 1762000000000000000}'
    assert with_exact_numbers(pa.chunked_array([pa.array([plain])])).to_pylist() == [exact(plain)]
