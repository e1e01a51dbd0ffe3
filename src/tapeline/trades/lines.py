"""How a record looks on the wire: one line of JSON, and one line of truth."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache

from tapeline.trades.faults import damaged_line
from tapeline.trades.records import Sent
from tapeline.trades.settlement import EXCHANGE_ZONE

# Which accepted spelling a line uses: one bit of the record's style each.
LOWER_SIDE = 1
LOWER_TERMINAL = 2
LOCAL_TIME = 4
DEFAULTS_STATED = 8
BARE_CANCEL = 16


def line(sent: Sent) -> bytes:
    """The record as its terminal sends it: one line of JSON, without the newline."""
    text = _cancel(sent) if _is_bare_cancel(sent) else _record(sent)
    return damaged_line(sent, text.encode()) if sent.fate[0] == "b" else text.encode()


def truth(sent: Sent) -> str:
    """The record and its fate as one line of JSON: typed values as text, absent ones as null."""
    return json.dumps({name: _plain(getattr(sent, name)) for name in _TRUTH_FIELDS})


def _record(sent: Sent) -> str:
    style = sent.style
    side = sent.side.lower() if style & LOWER_SIDE else sent.side
    terminal = sent.terminal.lower() if style & LOWER_TERMINAL else sent.terminal
    change = ""
    if sent.version > 1 or style & DEFAULTS_STATED:
        change = f',"version":{sent.version},"event":"{sent.event}"'
    currency = f',"currency":"{sent.currency}"' if sent.currency else ""
    fees = f',"fees":"{sent.fees}"' if sent.fees or style & DEFAULTS_STATED else ""
    trade_date = f',"trade_date":"{sent.trade_date}"' if sent.trade_date else ""
    return (
        f'{{"trade_id":"{sent.trade_id}"{change},"traded_at":"{_time(sent.traded_at, style)}"'
        f',"side":"{side}","instrument":{_quoted(sent.instrument)},"quantity":"{sent.quantity}"'
        f',"price":"{sent.price}"{currency},"client":"{sent.client}","terminal":"{terminal}"'
        f"{fees}{trade_date}}}"
    )


def _is_bare_cancel(sent: Sent) -> bool:
    return sent.event == "CANCEL" and bool(sent.style & BARE_CANCEL)


def _cancel(sent: Sent) -> str:
    """A cancellation that says no more than it must: which trade, which version."""
    return f'{{"trade_id":"{sent.trade_id}","version":{sent.version},"event":"CANCEL"}}'


def _time(moment: datetime, style: int) -> str:
    if style & LOCAL_TIME:
        return moment.astimezone(EXCHANGE_ZONE).isoformat(timespec="microseconds")
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


@lru_cache(maxsize=65_536)
def _quoted(text: str) -> str:
    """A text as JSON. Only a user's own instruments can need more than the quotes."""
    return json.dumps(text)


def _plain(value: object) -> str | int | float | None:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return str(value)


_TRUTH_FIELDS = tuple(field.name for field in fields(Sent) if field.name != "style")
