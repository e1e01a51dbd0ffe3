"""Numbers of JSON records, so that Spark reads every digit.

Spark makes a double of a number without quotes before anybody sees its text: digits behind the
17th are lost, and 10000000.5 comes as 1.00000005E7. Such numbers get quotes on their way to Spark.
The tape keeps the record as it came. Numbers that a double does not change are the business of
`exact_json`; here every depth of a record is looked at.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

# Numbers that a double may write otherwise: from 10^7, below 0.001, long ones, with an exponent.
SUSPECT = r'(?:"\s*:|[\[,])\s*-?(\d{8,}\.\d|0\.000|\d{1,7}\.\d{9}|\d+(\.\d+)?[eE])'
# A text, which may not end; or a number.
TOKEN = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?',
    re.DOTALL,
)
FLOAT = re.compile(rb"[.eE]")


def quoted(rows: pa.Table) -> pa.Table:
    """Rows whose `raw` has quotes around each number that a double would change."""
    raw = rows["raw"]
    suspects = pc.fill_null(pc.match_substring_regex(raw, SUSPECT), False)
    if not pc.any(suspects).as_py():
        return rows
    changed = pa.array([quote(one) for one in raw.filter(suspects).to_pylist()], raw.type)
    exact = pc.replace_with_mask(raw.combine_chunks(), suspects.combine_chunks(), changed)
    return rows.set_column(rows.schema.get_field_index("raw"), "raw", exact)


def quote(record: bytes) -> bytes:
    """JSON with quotes around its fractions; what is no JSON stays as it is, or none."""
    return TOKEN.sub(_written, record)


def _written(found: re.Match[bytes]) -> bytes:
    token = found[0]
    if token.startswith(b'"') or not FLOAT.search(token):
        return token
    return b'"' + token + b'"'
