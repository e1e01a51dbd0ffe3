"""FIX execution reports as trades: fills, corrections and busts.

Every other message (orders, cancels, rejects, status, the session's own) has no `action`, so a
step leaves it out with one filter. Logs write the delimiter in many ways; it is read off the
message itself, between its first two fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, get_args

from tapeline.books.reasons import reason, sentence_of
from tapeline.declare.format import Format, RecordFile, RecordSource
from tapeline.declare.schema import parse_schema
from tapeline.errors import DeclarationError
from tapeline.formats.faults import FAULT_SEPARATOR, WARNED
from tapeline.formats.fix_messages import BEGIN, one_each
from tapeline.formats.json_line import json_line
from tapeline.formats.lines import split_lines
from tapeline.words import counted

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
FixChecks = Literal["quarantine", "warn"]
# A FIX message as a trade. `action` is NEW, CORRECT or CANCEL; null for what is no trade.
COLUMNS = parse_schema(
    "action string, trade_id string, version bigint, traded_at timestamp, symbol string, "
    "side string, quantity decimal(18,6), price decimal(18,8), currency string, account string, "
    "exec_id string, exec_ref_id string, order_id string, client_order_id string, "
    "message_type string, exec_type string, order_status string, sender string, target string"
)


@dataclass(frozen=True)
class Fix(Format):
    """FIX messages, in logs or one by one.

    `checks` says what becomes of messages whose checksum or body length is wrong. `remarks` says
    that lines without any message are remarks between those of a log.
    """

    checks: FixChecks = "quarantine"
    remarks: bool = False
    name = "fix"
    extra = "fix"
    columns = COLUMNS
    grows = True

    @property
    def warns(self) -> bool:  # type: ignore[override]
        return self.checks == "warn"

    @property
    def meaning(self) -> Mapping[str, Any]:
        more = {} if self.checks == "quarantine" else {"fix_checks": self.checks}
        return {"format": self.name, **more}

    def for_source(self, source: RecordSource) -> Format:
        return replace(self, remarks=not source.messages)

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        return map(one_each, split_lines(file))

    def decode(self, raw: bytes, header: bytes | None) -> bytes:
        return json_line(trade_of(raw, remarks=self.remarks, strict=not self.warns))


def with_checks(what: str, said: Format, checks: str) -> Format:
    """The format with `fix_checks`; refused if it is not FIX, or the word does not exist."""
    if checks not in get_args(FixChecks):
        known = ", ".join(get_args(FixChecks))
        raise DeclarationError(f"{what}: fix_checks '{checks}' is not one of {known}.")
    if checks == "quarantine":
        return said
    if not isinstance(said, Fix):
        raise DeclarationError(
            f"{what}: 'fix_checks' is only for FIX; the format is '{said.name}'."
        )
    return replace(said, checks="warn")


def trade_of(raw: bytes, *, remarks: bool, strict: bool = True) -> dict[str, Any]:
    """The trade that a message reports; an object without an action if it reports none.

    `remarks`: lines without any message are remarks between those of a log. Raises ValueError for
    what is not one sound message; if not `strict`, a wrong length or checksum is a warning.
    """
    if remarks and not PIECE.search(raw):
        return {}
    message, damage = _message(raw)
    if strict and damage:
        raise ValueError(damage[0])
    fields = _fields(message)
    names = {
        **({WARNED: FAULT_SEPARATOR.join(map(sentence_of, damage))} if damage else {}),
        "message_type": fields.get(35),
        "exec_type": fields.get(150),
        "order_status": fields.get(39),
        "sender": fields.get(49),
        "target": fields.get(56),
    }
    action = _action(fields)
    return {**names, "action": action, **_trade(fields, action)} if action else names


def _message(raw: bytes) -> tuple[bytes, list[str]]:
    """The one message in a record, its fields ended by SOH, and what is damaged in it."""
    found = list(BEGIN.finditer(raw))
    if len(found) != 1:
        if not found:
            raise ValueError("not one FIX message: there is no FIX message in it")
        several = "not one FIX message: there are several in it"
        raise ValueError(reason(several, counted(len(found), "message")))
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
    return message, list(_damage(message, body, end.start() + 1, int(end[1])))


def _damage(message: bytes, body: int, end: int, said: int) -> Iterator[str]:
    """What length and checksum say against a message."""
    length = int(message[:body].rsplit(b"9=", 1)[1].rstrip(SOH))
    if length != end - body:
        detail = f"it says {length:,}, it has {counted(end - body, 'byte')}"
        yield reason("damaged: its BodyLength (9) is wrong", detail)
    found = sum(message[:end]) % 256
    if found != said:
        detail = f"it says {said:03}, its bytes add up to {found:03}"
        yield reason("damaged: its CheckSum (10) is wrong", detail)


def _fields(message: bytes) -> Fields:
    """The first value of every tag: repeating groups say nothing about a trade's own fields."""
    import simplefix

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
    """A UTC time as decoding reads it; digits after the microseconds are left out."""
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
