"""FIX execution reports as trades, against logs of real systems and their known fills."""

from __future__ import annotations

import csv
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline.formats.fix import trade_of
from tapeline.formats.fix_messages import one_each
from tapeline.formats.lines import Lines, lines_of
from tests.support.fix import FILL_42, FILL_44, message


def action(fields: dict[int, str], version: str = "FIX.4.4") -> Any:
    return trade_of(message(fields, version), remarks=False).get("action")


@pytest.mark.parametrize("delimiter", ["\x01", "|", ";", "^A", "^", " ", "<SOH>"])
def test_a_fill_is_a_trade_however_its_log_writes_the_delimiter(delimiter: str) -> None:
    line = b"2026-11-13 INFO incoming: " + message(FILL_44, delimiter=delimiter)
    found = trade_of(line, remarks=True)
    assert found["action"] == "NEW"
    assert found["trade_id"] == "e1"
    assert (found["side"], found["quantity"], found["price"]) == ("BUY", "100", "9.25")
    assert found["traded_at"] == "2026-11-13T10:04:59.123456Z"


def test_corrections_and_busts_name_the_fill_they_change() -> None:
    changes = [
        ({**FILL_44, 150: "G", 17: "e2", 19: "e1"}, "FIX.4.4", "CORRECT"),
        ({**FILL_44, 150: "H", 17: "e3", 19: "e1"}, "FIX.4.4", "CANCEL"),
        ({**FILL_42, 20: "2", 17: "e2", 19: "e1"}, "FIX.4.2", "CORRECT"),
        ({**FILL_42, 20: "1", 150: "0", 17: "e3", 19: "e1"}, "FIX.4.2", "CANCEL"),
    ]
    for fields, version, expected in changes:
        found = trade_of(message(fields, version), remarks=False)
        assert (found["action"], found["trade_id"]) == (expected, "e1")


def test_what_is_no_trade_has_no_action() -> None:
    for kind in "03456789ABCDEI":
        assert action({**FILL_44, 150: kind}) is None, kind
    assert action({**FILL_42, 20: "3"}, "FIX.4.2") is None  # a status, not an event
    assert action({**FILL_44, 32: "0"}) is None
    assert action({k: v for k, v in FILL_44.items() if k != 32}) is None
    for other in ("D", "F", "G", "9", "0", "A", "5"):
        assert action({**FILL_44, 35: other}) is None, other


def test_a_message_sent_again_has_the_version_it_had() -> None:
    again = {**FILL_44, 43: "Y", 52: "20261113-11:00:00", 122: FILL_44[52]}
    first, second = (trade_of(message(one), remarks=False) for one in (FILL_44, again))
    assert first["version"] == second["version"]
    later = trade_of(message({**FILL_44, 34: "8"}), remarks=False)
    assert later["version"] > first["version"]


def test_fix_4_0_says_by_the_order_s_status_what_was_filled() -> None:
    old = {tag: value for tag, value in FILL_42.items() if tag != 150}
    assert action(old, "FIX.4.0") == "NEW"
    assert action({**old, 39: "0"}, "FIX.4.0") is None


@given(st.binary(max_size=300), st.integers(0, 250), st.booleans())
def test_whatever_comes_is_a_trade_or_a_reason(noise: bytes, place: int, remarks: bool) -> None:
    whole = message(FILL_44)
    for raw in (noise, whole[:place] + noise + whole[place:], whole[:place] + noise):
        try:
            assert trade_of(raw, remarks=remarks).get("action") in (None, "NEW")
        except ValueError as error:
            assert str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (message(FILL_44).replace(b"31=9.25", b"31=9.35"), "CheckSum (10) is wrong\x1eit says"),
        (message(FILL_44).replace(b"31=9.25", b"31=19.25"), "BodyLength (9) is wrong\x1eit says"),
        (message(FILL_44)[:-8], "cut off"),
        (message(FILL_44) + message(FILL_44), "there are several in it\x1e2 messages"),
        (message(FILL_44).replace(b"8=FIX", b"8=FIZ"), "there is no FIX message in it"),
        (b"8=FIX.4.4\x0135=8\x0110=000\x01", "BodyLength (9) is not its second field"),
    ],
)
def test_damaged_messages_say_what_is_wrong(raw: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        trade_of(raw, remarks=True)


def test_remarks_between_the_messages_of_a_log_are_no_messages() -> None:
    assert trade_of(b"10:04 session created, 10 orders", remarks=True) == {}
    with pytest.raises(ValueError, match="no FIX message"):
        trade_of(b"session created", remarks=False)


def test_the_logs_of_real_systems_give_their_known_fills(shared: Path) -> None:
    """The oracle knows nothing of checksums, and two of the logs have been edited by hand."""
    folder = shared / "fix_logs"
    with (folder / "fills.csv").open(encoding="utf-8") as file:
        # A short sale is a sale.
        known = [
            (
                f["log"],
                f["exec_id"],
                f["side"][:4].strip("_"),
                Decimal(f["last_qty"]),
                Decimal(f["last_px"]),
            )
            for f in csv.DictReader(file)
        ]
    logs = [path for path in folder.iterdir() if path.suffix in (".log", ".dat", ".body")]
    found = [
        (log.name, t["exec_id"], t["side"], Decimal(t["quantity"]), Decimal(t["price"]))
        for log in logs
        for t in trades_in(log)
        if t.get("action") == "NEW"
    ]
    assert Counter(found) == Counter(known)
    assert len(known) == 131


def trades_in(log: Path) -> list[dict[str, Any]]:
    found = []
    lines = log.read_bytes().replace(b"\r\n", b"\n").split(b"\n")
    for record in one_each(lines_of([line for line in lines if line.strip()], 1, 10**6)).records():
        try:
            found.append(trade_of(record, remarks=True, strict=False))
        except ValueError as error:
            assert "BodyLength (9) is not its second field" in str(error)  # noqa: PT017
    return found


def test_messages_on_one_line_are_records_of_their_own() -> None:
    texts = [message({**FILL_44, 58: "FIX.4.4 is spoken here", 34: str(n)}) for n in range(4)]
    lines = lines_of([b"10:05 " + texts[0], b"a remark", texts[1] + texts[2] + texts[3]], 7, 10**6)
    found = one_each(Lines(lines.values, lines.lengths, lines.numbers, {2: "cut"}))
    assert found.records() == [b"10:05 " + texts[0], b"a remark", *texts[1:]]
    assert found.numbers.tolist() == [7, 8, 9, 9, 9]
    assert found.faults == {4: "cut"}
    assert all(trade_of(one, remarks=True) for one in texts)
    assert one_each(found).records() == found.records()
