"""Numbers of JSON keep every digit on their way to Spark."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline.formats.exact_json import MARK, exact, with_exact_numbers


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"a": 12345678.90, "b": 1}', b'{"a":"12345678.90","b":1}'),
        (b'{"a": -1E+400}', b'{"a":"-1E+400"}'),
        (b'[1.10, "1.10", null]', b'["1.10","1.10",null]'),
        (b'{"a": {"k": [1.10, "x"]}, "b": [1.5]}', rb'{"a":"{\"k\":[1.10,\"x\"]}","b":"[1.5]"}'),
        (b'{"a": [1, {"k": 2}], "b": 0.5}', b'{"a":[1,{"k":2}],"b":"0.5"}'),
        (rb'{"a": "\ud800 1.5", "b": 1.5}', rb'{"a":"\ud800 1.5","b":"1.5"}'),
        ('{"é": "ü", "b": 1.5}'.encode(), rb'{"\u00e9":"\u00fc","b":"1.5"}'),
    ],
)
def test_numbers_that_are_not_whole_become_texts(raw: bytes, text: bytes) -> None:
    assert exact(raw) == text


@pytest.mark.parametrize(
    "raw",
    [b'{"a": 1.5', b'{"a": 1.}', b'{"a": NaN, "b": 1.5}', b"1.5", b'{"a": 1.5} x', b"\xff: 1.5",
     b'{"a":' + b"[" * 100_000 + b"1.5", b'{"a": 1.5, "b": ' + b"9" * 5_000 + b"}"],
)  # fmt: skip
def test_what_is_not_json_stays_as_it_is(raw: bytes) -> None:
    assert exact(raw) == raw


@pytest.mark.parametrize("depth", [100, 400, 700, 800, 900, 950, 990])
def test_deep_records_are_changed_or_stay_as_they_are(depth: int) -> None:
    raw = b'{"a":' + b"[" * depth + b"1.50" + b"]" * depth + b"}"
    assert exact(raw) in (raw, raw.replace(b":", b':"').replace(b"}", b'"}'))


def test_only_records_with_such_numbers_are_changed() -> None:
    raws = [b'{"a":  1}', b'{"a":  1.0}', None, b'{"a":  "x: 1.0"}', b"\xff", b'{"a":  1e5}']
    for given_ in (pa.chunked_array([pa.array(raws, pa.binary())]), pa.chunked_array([raws[:1]])):
        found = with_exact_numbers(given_).to_pylist()
        assert found == [b'{"a":  1}', b'{"a":"1.0"}', None, b'{"a":  "x: 1.0"}', b"\xff",
                         b'{"a":  "1e5"}'][: len(given_)]  # fmt: skip


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def written(value: object) -> str:
    """JSON with decimals as numbers, by hand."""
    if isinstance(value, Decimal):
        return str(value).replace("Infinity", "1.0").replace("E+", "E")
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {written(v)}' for k, v in value.items())}}}"
    return json.dumps(value)


def read(text: bytes | str) -> object:
    return json.loads(text, parse_float=Decimal)


@given(st.dictionaries(st.text(max_size=3), VALUES))
def test_every_value_is_the_same_once_texts_are_read(row: dict[str, object]) -> None:
    text = written(row)
    before, after = read(text), read(exact(text.encode("utf-8", "surrogatepass")))
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert list(after) == list(before)
    for name, value in before.items():
        found = after[name]
        if isinstance(value, Decimal | dict | list) and isinstance(found, str):
            found = read(found)
        assert found == value
    assert MARK not in exact(text.encode()).decode()
