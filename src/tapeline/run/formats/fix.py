"""FIX execution reports as trades: fills, corrections and busts.

Every other message (orders, cancels, rejects, status, the session's own) has no `action`, so a
step leaves it out with one filter. Logs write the delimiter in many ways; it is read off the
message itself, between its first two fields.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import simplefix

from tapeline.run.intake.messages import BEGIN

SOH = b"\x01"
SECOND = re.compile(rb"(?P<delimiter>[^0-9A-Za-z=]{1,4}?|\^A|<SOH>)9=[0-9]+(?P=delimiter)")
CHECKSUM = re.compile(rb"\x0110=([0-9]+)(?![0-9])")
# What looks like a piece of a message is never taken for a remark of the log's writer.
PIECE = re.compile(rb"(?<![0-9])(8=FIX|35=[0-9A-Za-z]|10=[0-9]{3})")
MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d:\d\d:\d\d)(\.\d{1,6})?\d*")
EXECUTION_REPORT = "8"
SIDES = {"1": "BUY", "3": "BUY", "2": "SELL", "4": "SELL", "5": "SELL", "6": "SELL"}
FILLS = ("1", "2", "F")  # ExecType: partial fill and fill until FIX 4.2, trade since 4.3
# ExecType since 4.3, ExecTransType until 4.2.
CHANGES = {"G": "CORRECT", "H": "CANCEL"}
OLD_CHANGES = {"1": "CANCEL", "2": "CORRECT"}
STATUS = "3"
MESSAGES_PER_VERSION = 1_000_000  # a message's number decides between two of one millisecond

Fields = dict[int, str]


def trade_of(raw: bytes, *, remarks: bool, checked: bool = True) -> dict[str, Any]:
    """The trade that a message reports; an object without an action if it reports none.

    `remarks`: lines without any message are remarks between those of a log. `checked`: length and
    checksum must be right. Raises ValueError for what is not one sound message.
    """
    if remarks and not PIECE.search(raw):
        return {}
    fields = _fields(_message(raw, checked))
    names = {
        "message_type": fields.get(35),
        "exec_type": fields.get(150),
        "order_status": fields.get(39),
        "sender": fields.get(49),
        "target": fields.get(56),
    }
    action = _action(fields)
    return {**names, "action": action, **_trade(fields, action)} if action else names


def _message(raw: bytes, checked: bool) -> bytes:
    """The one message in a record, its fields ended by SOH."""
    found = list(BEGIN.finditer(raw))
    if len(found) != 1:
        count = f"are {len(found)} FIX messages" if found else "is no FIX message"
        raise ValueError(f"not one FIX message: there {count} in it")
    start = found[0]
    second = SECOND.match(raw, start.end())
    if second is None:
        raise ValueError("not a FIX message: BodyLength (9) is not its second field")
    text = raw[start.start() :].replace(second["delimiter"], SOH)
    body = text.index(SOH, len(start[0]) + 1) + 1
    end = CHECKSUM.search(text, body - 1)
    if end is None:
        raise ValueError("cut off: it has no CheckSum (10)")
    message = text[: end.end(1)] + SOH
    if checked:
        _check(message, body, end.start() + 1, int(end[1]))
    return message


def _check(message: bytes, body: int, end: int, said: int) -> None:
    length = int(message[:body].rsplit(b"9=", 1)[1].rstrip(SOH))
    if length != end - body:
        raise ValueError(f"damaged: its BodyLength (9) says {length}, it has {end - body} bytes")
    if sum(message[:end]) % 256 != said:
        raise ValueError(
            f"damaged: its CheckSum (10) says {said:03}, its bytes add up to "
            f"{sum(message[:end]) % 256:03}"
        )


def _fields(message: bytes) -> Fields:
    """The first value of every tag: repeating groups say nothing about a trade's own fields."""
    parser = simplefix.FixParser()
    parser.append_buffer(message)
    parsed = parser.get_message()
    if parsed is None:
        raise ValueError("not a FIX message: it cannot be cut into fields")
    fields: Fields = {}
    for tag, value in parsed.pairs:
        fields.setdefault(int(tag), value.decode("utf-8", "replace"))
    return fields


def _action(fields: Fields) -> str | None:
    """What a message does to a trade, if it is about one."""
    if fields.get(35) != EXECUTION_REPORT:
        return None
    kind, old = fields.get(150) or fields.get(39, ""), fields.get(20, "0")  # 4.0 has no ExecType
    if old == STATUS:
        return None
    if old in OLD_CHANGES or kind in CHANGES:
        return OLD_CHANGES.get(old) or CHANGES[kind]
    return "NEW" if kind in FILLS and _moves(fields) else None


def _moves(fields: Fields) -> bool:
    """Whether anything changed hands. What is not a number goes on, and is found out later."""
    try:
        return Decimal(fields.get(32, "0")) != 0
    except InvalidOperation:
        return True


def _trade(fields: Fields, action: str) -> dict[str, Any]:
    side = fields.get(54)
    return {
        "trade_id": fields.get(17) if action == "NEW" else fields.get(19),
        "version": _version(fields),
        "traded_at": _moment(fields.get(60) or fields.get(52)),
        "symbol": fields.get(55),
        "side": SIDES.get(side or "", side),
        "quantity": fields.get(32),
        "price": fields.get(31),
        "currency": fields.get(15),
        "account": fields.get(1),
        "exec_id": fields.get(17),
        "exec_ref_id": fields.get(19),
        "order_id": fields.get(37),
        "client_order_id": fields.get(11),
    }


def _moment(text: str | None) -> str | None:
    """A UTC time as decoding reads it; digits behind the microseconds are left out."""
    found = MOMENT.fullmatch(text or "")
    if found is None:
        return text
    year, month, day, clock, fraction = found.groups()
    return f"{year}-{month}-{day}T{clock}{fraction or ''}Z"


def _version(fields: Fields) -> int | None:
    """When a message was first sent, and its number: a message sent again has the same."""
    try:
        sent = datetime.fromisoformat(_moment(fields.get(122) or fields.get(52)) or "")
        number = int(fields.get(34, "0"))
    except ValueError:
        return None
    milliseconds = int(sent.astimezone(UTC).timestamp() * 1000)
    return milliseconds * MESSAGES_PER_VERSION + number % MESSAGES_PER_VERSION
