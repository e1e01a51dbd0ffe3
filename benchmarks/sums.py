"""What every arm reads, and what it must answer: quarter-hour sums by terminal and currency.

An arm whose sums differ from the truth has no number, so all arms write them alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal

# window_start, terminal, currency, total_buy, total_sell, trades
Row = tuple[str, str, str, str, str, int]

# The fields of a line as it comes. All text: Spark would round a decimal that is too long, and
# say nothing.
LINE_FIELDS = (
    "trade_id",
    "version",
    "event",
    "traded_at",
    "side",
    "instrument",
    "quantity",
    "price",
    "currency",
    "client",
    "terminal",
    "fees",
    "trade_date",
    "settles_on",
)
COLUMNS = ("window_start", "terminal", "currency", "total_buy", "total_sell", "trades")
MONEY_PLACES = Decimal("0.0001")


def row(values: Iterable[object]) -> Row:
    """A row of sums as text, however an engine gave it: times in UTC, money with four decimals."""
    start, terminal, currency, buy, sell, trades = values
    if isinstance(start, datetime):
        # Engines give either UTC with its zone, or UTC without one.
        start = start.astimezone(UTC) if start.tzinfo else start.replace(tzinfo=UTC)
        start = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    return str(start), str(terminal), str(currency), _money(buy), _money(sell), int(str(trades))


def utc(seconds: int) -> datetime:
    """A time that an engine counts in seconds."""
    return datetime.fromtimestamp(seconds, UTC)


def _money(value: object) -> str:
    if isinstance(value, float):
        raise TypeError(f"money is never a float: {value}")
    exact = Decimal(str(value))
    if exact != exact.quantize(MONEY_PLACES):
        raise ValueError(f"money has at most four decimals: {value}")
    return str(exact.quantize(MONEY_PLACES))


def checksum(rows: Iterable[Row]) -> str:
    """Sixteen hexadecimal digits that equal sums share."""
    lines = sorted("|".join(map(str, one)) for one in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def trades(rows: Iterable[Row]) -> int:
    """How many trades the sums count."""
    return sum(one[-1] for one in rows)


def differences(found: Iterable[Row], expected: Iterable[Row]) -> list[str]:
    """The windows in which two answers differ, as lines to read."""
    left, right = ({one[:3]: one[3:] for one in rows} for rows in (found, expected))
    return [
        f"{key}: found {left.get(key)}, expected {right.get(key)}"
        for key in sorted({*left, *right})
        if left.get(key) != right.get(key)
    ]
