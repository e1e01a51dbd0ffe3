"""What can be wrong with a record, and how it is made wrong: in its values, or in its line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from tapeline.trades.records import Sent
from tapeline.trades.reference import cusip_check_digit, isin_check_digit

REQUIRED = (
    "trade_id",
    "traded_at",
    "side",
    "instrument",
    "quantity",
    "price",
    "client",
    "terminal",
)
# Ten years: a watermark that follows such a record would never come back.
FUTURE_DAYS = 3652


def damaged(sent: Sent, kind: str) -> Sent:
    """A good record with one of the KINDS of damage to its values, and the fate that follows."""
    # The record alone is good: only a join to the instruments can find it wrong.
    fate = kind if kind == "unknown_instrument" else f"broken:{kind}"
    return replace(VALUE_FAULTS.get(kind, _same)(sent), fate=fate)


def damaged_line(sent: Sent, line: bytes) -> bytes:
    """The line of a record, with the damage that its fate does to the line itself."""
    kind = sent.fate.removeprefix("broken:")
    return LINE_FAULTS[kind](sent, line) if kind in LINE_FAULTS else line


def _same(sent: Sent) -> Sent:
    return sent


def _unknown_instrument(sent: Sent) -> Sent:
    """A symbol or a well-formed ISIN that no reference of ours holds."""
    body = f"99{sent.style:04d}20"
    body = f"US{body}{cusip_check_digit(body)}"
    isin = f"{body}{isin_check_digit(body)}"
    return replace(sent, instrument=isin if sent.style % 2 else "UNLISTED")


def _too_many_decimals(sent: Sent) -> Sent:
    """Nine decimals in the price, or seven in the quantity: one more than the type holds."""
    if sent.style % 2:
        return replace(sent, price=sent.price + Decimal("0.000000001"))
    return replace(sent, quantity=sent.quantity + Decimal("0.0000001"))


def _future(sent: Sent) -> Sent:
    traded_at = sent.traded_at + timedelta(days=FUTURE_DAYS)
    return replace(sent, traded_at=traded_at, trade_date=None)


VALUE_FAULTS: dict[str, Callable[[Sent], Sent]] = {
    "unknown_side": lambda sent: replace(sent, side="HOLD"),
    "negative_quantity": lambda sent: replace(sent, quantity=-sent.quantity),
    "zero_price": lambda sent: replace(sent, price=Decimal("0.00")),
    "too_many_decimals": _too_many_decimals,
    "nan": lambda sent: replace(sent, price=Decimal("NaN")),
    "too_large": lambda sent: replace(sent, quantity=Decimal(10**18)),
    "bad_currency": lambda sent: replace(sent, currency="ZZZ"),
    "future": _future,
    "unknown_instrument": _unknown_instrument,
}


def _not_json(sent: Sent, line: bytes) -> bytes:
    """A line that stops in the middle, or one that was never JSON."""
    return line[: len(line) // 2] if sent.style % 2 else b"ERROR 504 upstream timed out"


def _not_utf8(sent: Sent, line: bytes) -> bytes:
    """A byte that starts no character, in the middle of the client."""
    client = sent.client.encode()
    return line.replace(client, client[:3] + b"\xff" + client[3:])


def _missing_field(sent: Sent, line: bytes) -> bytes:
    fields = json.loads(line)
    del fields[REQUIRED[sent.style % len(REQUIRED)]]
    return json.dumps(fields, separators=(",", ":")).encode()


def _unknown_terminal(sent: Sent, line: bytes) -> bytes:
    """A terminal nobody has; in the line only, since the record did come from one of ours."""
    fields = json.loads(line)
    fields["terminal"] = "FAX"
    return json.dumps(fields, separators=(",", ":")).encode()


def _bare_nan(sent: Sent, line: bytes) -> bytes:
    """NaN as a text, or as a word that lenient JSON parsers read as a number."""
    return line.replace(b'"NaN"', b"NaN") if sent.style % 2 else line


LINE_FAULTS: dict[str, Callable[[Sent, bytes], bytes]] = {
    "not_json": _not_json,
    "not_utf8": _not_utf8,
    "missing_field": _missing_field,
    "unknown_terminal": _unknown_terminal,
    "nan": _bare_nan,
}

KINDS = tuple(sorted({*VALUE_FAULTS, *LINE_FAULTS}))
