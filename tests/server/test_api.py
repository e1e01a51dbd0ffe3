"""The API: what it says, in exact numbers, and what it refuses."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.brokerage import HOSTILE, Brokerage, get

FIRST = "2026-11-13T14:30:00Z"


def rows_of(found: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found["records"]
    return rows


def test_a_summary_is_read_with_conditions_groups_and_sums(address: str) -> None:
    found = get(
        address, "read/trade_summary", where=["window_start>=2026-11-13", "currency=USD"],
        group="window_start", sum=["total_buy", "total_sell", "trades"],
    )  # fmt: skip
    rows = {row["window_start"]: row for row in found["rows"]}
    assert rows[FIRST]["total_buy"] == "310.0000"  # corrected from 300
    assert rows[FIRST]["total_sell"] == "120.0000"
    assert rows["2026-11-13T14:45:00Z"]["total_buy"] == "50.0000"
    assert rows["2026-11-13T14:45:00Z"]["trades"] == 2
    assert found["next_offset"] is None


def test_a_number_is_read_as_it_was_reported(address: str) -> None:
    revisions = get(address, "why/trade_summary", key=[FIRST, "WEB", "USD"])["revisions"]
    assert [(r["cause"], r["change"]["total_buy"], r["value"]["total_buy"]) for r in revisions] == [
        ("on_time", "300.0000", "300.0000"),
        ("correction", "10.0000", "310.0000"),
    ]
    first, where = revisions[0]["at"], f"window_start={FIRST}"
    then = get(address, "read/trade_summary", where=where, as_reported=first)
    assert {r["total_buy"] for r in then["rows"] if r["terminal"] == "WEB"} == {"300.0000"}


def test_revisions_of_all_terminals_add_up(address: str) -> None:
    revisions = get(address, "why/trade_summary", key=[FIRST, "*", "USD"])["revisions"]
    assert revisions[-1]["value"] == {
        "total_buy": "310.0000", "total_sell": "120.0000", "fees": "3.0000", "trades": 2,
    }  # fmt: skip
    behind = get(
        address, "why/trade_summary/records", key=[FIRST, "*", "USD"], cause="correction",
        batch=revisions[-1]["batch"],
    )  # fmt: skip
    assert [(r["sign"], r["record"]) for r in behind["records"]] == [(-1, "b1"), (1, "b1")]


def test_records_behind_a_number_come_in_pages(address: str) -> None:
    key = ["2026-11-13T14:45:00Z", "*", "USD"]
    page = get(address, "why/trade_summary/records", key=key, batch=2, cause="on_time", limit=1)
    assert len(page["records"]) == 1
    rest = get(
        address, "why/trade_summary/records", key=key, batch=2, cause="on_time",
        offset=page["next_offset"],
    )  # fmt: skip
    assert {r["record"] for r in page["records"] + rest["records"]} == {"b3", HOSTILE}


def test_a_window_that_moved_after_it_was_final_is_restated(address: str) -> None:
    found = get(address, "read/trade_summary", where="window_start=2026-11-12T14:30:00Z")
    assert {row["_status"] for row in found["rows"]} == {"restated"}
    first = get(address, "pipeline")["first_published_at"]
    moved = get(address, "changes", since=first, summary="trade_summary")["changes"]
    (late,) = [c for c in moved if c["key"]["window_start"] == "2026-11-12T14:30:00Z"]
    assert (late["old"]["total_buy"], late["new"]["total_buy"]) == ("300.0000", "410.0000")
    assert late["causes"] == "late"


def test_csv_holds_the_same_and_no_formula(address: str) -> None:
    answer = httpx.get(f"{address}/api/read/trades", params={"format": "csv"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["content-type"].startswith("text/csv")
    assert {row["trade_id"] for row in rows} >= {"a1", "b5", HOSTILE}
    assert sum(Decimal(row["fees"]) for row in rows) == Decimal(15)


@pytest.mark.parametrize(
    ("path", "column", "values"),
    [
        ("why/trade_summary?key=*&key=WEB&key=USD", "cause", {"on_time", "correction", "late"}),
        ("changes?since=2026-11-13&summary=trade_summary", "new_trades", {"1", "2"}),
        ("quarantine", "table", {"trades", "enriched_trades"}),
        ("audit", "balances", {"true"}),
    ],
)
def test_lists_are_there_as_csv(address: str, path: str, column: str, values: set[str]) -> None:
    separator = "&" if "?" in path else "?"
    answer = httpx.get(f"{address}/api/{path}{separator}format=csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row[column] for row in rows} == values


def test_the_quarantine_is_listed_with_reasons_and_positions(address: str) -> None:
    found = get(address, "quarantine")
    assert found["count"] == 3
    assert found["reasons"]["price is above zero"] == 1
    assert [(g["kind"], g["table"], g["reason"], g["count"]) for g in found["groups"]] == [
        ("unreadable", "trades", "the record is not a JSON object", 1),
        ("rule", "enriched_trades", "instrument is known", 1),
        ("rule", "enriched_trades", "settles_on is not before trade_date", 1),
        ("rule", "enriched_trades", "the calendar has a settlement", 1),
        ("rule", "trades", "price is above zero", 1),
    ]
    rules = get(address, "quarantine", kind="rule")
    assert {row["kind"] for row in rows_of(rules)} == {"rule"}
    assert {(row["line"], row["topic"]) for row in rows_of(rules)} == {(8, None), (9, None)}
    assert "fix the rule" in rules["groups"][0]["remedies"]
    one = get(address, f"quarantine/{found['records'][0]['position']}")
    assert one["position"] == found["records"][0]["position"]
    assert get(address, "unmatched/trades")["count"] == 0


def test_the_trial_balance_and_health_are_there(address: str) -> None:
    balance = get(address, "audit")
    assert balance["balances"] is True
    assert balance["tapes"] == {"raw_trades": 14}
    health = get(address, "health")
    assert [batch["batch"] for batch in health["recent"]] == [1, 2, 3, 4]
    assert health["status"]["running"] is False


def test_metrics_speak_prometheus(address: str) -> None:
    text = httpx.get(f"{address}/metrics").text
    assert 'tapeline_records_total{table="trades",verdict="kept"} 10.0' in text
    assert "tapeline_batch 4.0" in text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("read/trade_sumary", 404, "'trade_sumary' not found"),
        ("read/raw_trades", 404, "'raw_trades' not found"),
        ("read/trade_summary?where=terminl=WEB", 400, "Did you mean 'terminal'?"),
        ("read/trade_summary?where=nonsense", 400, "is not a condition"),
        ("read/trade_summary?sum=total_buy", 400, "'group'"),
        ("read/trade_summary?group=terminal&sum=terminal", 400, "not a number"),
        ("read/trade_summary?limit=1000000", 422, "limit"),
        ("read/trade_summary?as_reported=soon", 400, "not a time"),
        ("why/trade_summary?key=a", 400, "Give 3 values"),
        ("why/trade_summary?key=a&key=b&key=c", 400, "window_start"),
        ("quarantine/../../etc/passwd", 404, ""),
        ("quarantine/nowhere", 400, "not a position"),
    ],
)
def test_what_is_wrong_is_said(address: str, path: str, status: int, words: str) -> None:
    answer = httpx.get(f"{address}/api/{path}")
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_sql_in_a_value_is_a_value(address: str) -> None:
    found = get(address, "read/trade_summary", where="terminal=WEB' or '1'='1")
    assert found["rows"] == []


def test_deliveries_are_listed_newest_first_and_shown_with_their_records(address: str) -> None:
    found = get(address, "deliveries")
    listed = found["deliveries"]
    assert [one["id"] for one in listed] == [f"raw_trades:{n}" for n in (4, 3, 2, 1)]
    assert found["last_booked"]["id"] == "raw_trades:4"
    trades = listed[2]["verdicts"]["trades"]
    assert (trades["duplicate"], trades["quarantined"]) == (1, 2)
    assert get(address, "deliveries", limit=2)["next_offset"] == 2
    one = get(address, "deliveries/raw_trades:2", verdict="quarantined")
    reasons = {r for row in one["shown"] for v in row["verdicts"] for r in v["reasons"]}
    assert "the record is not a JSON object" in reasons
    answer = httpx.get(f"{address}/api/deliveries", params={"format": "csv"})
    assert answer.text.splitlines()[0].startswith("source,kind,name,state,id")
    wrong = httpx.get(f"{address}/api/deliveries", params={"state": "gone"})
    assert (wrong.status_code, "is not a state" in wrong.json()["error"]) == (400, True)
    assert httpx.get(f"{address}/api/deliveries/none.csv").status_code == 400


def test_an_answer_follows_the_books(fresh: Brokerage) -> None:
    with fresh.served() as address:
        assert get(address, "read/trade_summary")["rows"] == []
        fresh.feed({"trade_id": "x"})
        assert get(address, "quarantine")["count"] == 1
        assert get(address, "pipeline")["batch"] == 1


def test_the_description_names_every_route(address: str) -> None:
    paths: dict[str, Any] = httpx.get(f"{address}/api/openapi.json").json()["paths"]
    assert {path.split("/")[2] for path in paths} == {
        "pipeline", "read", "values", "why", "changes", "quarantine", "unmatched", "audit",
        "health", "events", "me", "records", "deliveries",
    }  # fmt: skip
