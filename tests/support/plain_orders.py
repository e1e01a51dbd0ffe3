"""Twins of the steps that the pipelines of orders share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pyarrow as pa

from tests.support.plain_compute import Row, Twin

MONEY = pa.decimal128(12, 2)
FEE = pa.decimal128(14, 2)


def above_zero(row: Row) -> bool:
    return row["amount"] is not None and row["amount"] > 0


def _large(row: Row) -> Iterable[Row]:
    if row["amount"] is not None and row["amount"] >= 10:
        yield {**row, "fee": row["amount"] * 2}


def _totals(row: Row) -> Iterable[Row]:
    at = row["at"]
    if at is not None:  # a window is of a time
        quarter = at - timedelta(
            minutes=at.minute % 15, seconds=at.second, microseconds=at.microsecond
        )
        yield {"quarter": quarter, "side": row["side"], "amount": row["amount"], "n": 1}


def _fees(row: Row) -> Iterable[Row]:
    if row["side"] == "BUY":
        yield {"side": row["side"], "fee": row["fee"]}


LARGE = Twin(_large, (("fee", FEE),))
TOTALS = Twin(
    _totals,
    (
        ("quarter", pa.timestamp("us", "UTC")),
        ("side", pa.string()),
        ("amount", MONEY),
        ("n", pa.int64()),
    ),
)
FEES = Twin(_fees, (("side", pa.string()), ("fee", FEE)))
