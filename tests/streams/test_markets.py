"""Several markets in one set of books: each venue's own days, settlements and currencies."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapeline.operate.drill.compare import trade_differences
from tapeline.testing import Books, Trial, quarantined, unbalanced, why
from tapeline.trades.delivery import write_truth
from tapeline.trades.lines import line
from tapeline.trades.markets import named
from tapeline.trades.own_days import extend_calendar, read_own_days
from tapeline.trades.reference import make_instruments, read_instruments, write_reference
from tapeline.trades.simulator import Day, simulate
from tests.support.brokerage import pipeline_with

pytestmark = pytest.mark.usefixtures("spark")
LISTED = {one.venue: one for one in make_instruments(60, named("US,IN,EU"))}


def trade(trade_id: str, traded_at: str, venue: str, price: str, **more: Any) -> dict[str, Any]:
    """A purchase of ten pieces of what a venue lists, in the currency it is quoted in."""
    return {
        "trade_id": trade_id,
        "traded_at": f"{traded_at}Z",
        "side": "BUY",
        "instrument": LISTED[venue].symbol,
        "quantity": "10",
        "price": price,
        "client": "C000001",
        "terminal": "WEB",
        "fees": "1.50",
        **more,
    }


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    write_reference(tmp_path / "reference", (2024, 2027), 60, 20, named("US,IN,EU"))
    return Trial(pipeline_with(markets="US,IN,EU", client_due="yes"), tmp_path)


def test_a_trade_belongs_to_the_day_of_its_own_venue(trial: Trial) -> None:
    trial.feed(
        raw_trades=[
            trade("i1", "2024-02-19T03:50:00", "XNSE", "100"),  # 22:50 on Sunday in New York
            trade("u1", "2024-02-21T03:50:00", "XNYS", "7", currency="USD"),  # still Tuesday there
            trade("e1", "2024-02-20T23:30:00", "XETR", "20"),  # half past midnight in Frankfurt
        ]
    )
    dates = {row["trade_id"]: str(row["trade_date"]) for row in trial.read("enriched_trades")}
    assert dates == {"i1": "2024-02-19", "u1": "2024-02-20", "e1": "2024-02-21"}
    due = [(r["settlement_id"], str(r["settles_on"]), r["currency"]) for r in trial.read("due")]
    assert due == [
        ("IN-T2024-02-19", "2024-02-20", "INR"),
        ("US-2024-02-22", "2024-02-22", "USD"),
        ("EU-2024-02-23", "2024-02-23", "EUR"),
    ]  # fmt: skip


def test_a_zone_that_nobody_knows_stops_no_batch(tmp_path: Path) -> None:
    write_reference(tmp_path / "reference", (2024, 2024), 60, 20, named("US,IN,EU"))
    path = tmp_path / "reference" / "instruments.csv"
    text = path.read_text().replace("Asia/Kolkata", "Asia/Nowhere").replace("Europe/Berlin", "")
    path.write_text(text)
    trial = Trial(pipeline_with(markets="US,IN,EU"), tmp_path)
    trial.feed(
        raw_trades=[
            trade("nowhere", "2024-02-21T03:50:00", "XNSE", "100"),
            trade("dated", "2024-02-21T03:50:00", "XNSE", "100", trade_date="2024-02-21"),
            trade("home", "2024-02-21T03:50:00", "XETR", "100"),
        ]
    )
    (waiting,) = trial.quarantine("enriched_trades")
    assert (waiting["trade_id"], waiting["_reasons"][0]) == (
        "nowhere", "the calendar has a settlement",
    )  # fmt: skip
    dates = {row["trade_id"]: str(row["trade_date"]) for row in trial.read("enriched_trades")}
    assert dates == {"dated": "2024-02-21", "home": "2024-02-20"}  # without a zone, New York's


def test_india_pays_two_trade_dates_on_one_day_as_two_settlements(trial: Trial) -> None:
    trial.feed(
        raw_trades=[
            trade("friday", "2024-02-16T05:00:00", "XNSE", "100"),
            trade("monday", "2024-02-19T05:00:00", "XBOM", "30", side="SELL"),
            trade("apart", "2024-02-16T05:00:00", "XNSE", "1", settles_on="2024-02-19"),
        ]
    )
    due = {r["settlement_id"]: (str(r["settles_on"]), r["due"]) for r in trial.read("due")}
    assert due == {
        "IN-T2024-02-16": ("2024-02-20", Decimal("1001.5")),
        "IN-T2024-02-19": ("2024-02-20", Decimal("-298.5")),
        "IN-2024-02-19": ("2024-02-19", Decimal("11.5")),  # named by the trade itself
    }


def test_a_trade_of_a_year_that_no_calendar_holds_waits_until_days_of_ones_own_do(
    trial: Trial, tmp_path: Path
) -> None:
    trial.feed(
        raw_trades=[
            trade("known", "2024-02-16T05:00:00", "XNSE", "100", trade_date="2026-12-30"),
            trade("later", "2024-02-16T05:00:00", "XNSE", "100", trade_date="2027-01-25"),
        ]
    )
    (waiting,) = quarantined(trial.books, reason="the calendar has a settlement")
    assert (waiting["table"], waiting["key"]) == ("enriched_trades", "later")
    (tmp_path / "days.csv").write_text("day,what\n2027-01-26,no session\n")
    own = read_own_days(tmp_path / "days.csv")
    extend_calendar(tmp_path / "reference" / "settlement_calendar.csv", named("IN")[0], own)
    assert trial.redrive(positions=[waiting["position"]]) == 1
    assert quarantined(trial.books) == []
    due = {r["settlement_id"]: str(r["settles_on"]) for r in trial.read("due")}
    assert due == {"IN-T2026-12-30": "2026-12-31", "IN-T2027-01-25": "2027-01-27"}


def test_europes_last_two_day_trade_and_first_one_day_trade_settle_together(trial: Trial) -> None:
    # Booked by its trade date: an arrival from the future would wait in quarantine.
    said = {"trade_date": "2027-10-08"}
    trial.feed(
        raw_trades=[
            trade("two days", "2024-02-16T09:00:00", "XETR", "100", **said),
            trade("one day", "2024-02-16T09:00:00", "XPAR", "50", trade_date="2027-10-11"),
        ]
    )
    (due,) = trial.read("due")
    assert (due["settlement_id"], due["trades"]) == ("EU-2027-10-12", 2)
    assert due["due"] == Decimal(1503)


def test_running_totals_of_a_currency_run_over_its_own_markets_day(trial: Trial) -> None:
    """India's session lies on both sides of midnight in New York, 05:00 UTC."""
    trial.feed(
        raw_trades=[
            trade("i1", "2024-02-21T04:00:00", "XNSE", "100"),
            trade("i2", "2024-02-21T09:00:00", "XNSE", "10"),
            trade("u1", "2024-02-21T04:00:00", "XNYS", "7", currency="USD"),
            trade("u2", "2024-02-21T15:00:00", "XNYS", "3", currency="USD"),
            trade("j1", "2024-02-21T04:00:00", "XNYS", "9", currency="JPY"),
        ]
    )
    running = [
        (r["currency"], str(r["day"]), r["running_buy"]) for r in trial.read("running_totals")
    ]
    assert running == [
        ("INR", "2024-02-21", 1000),
        ("INR", "2024-02-21", 1100),
        ("JPY", "2024-02-20", 90),  # no market's own: the days at home
        ("USD", "2024-02-20", 70),
        ("USD", "2024-02-21", 30),
    ]


def test_one_clients_receivable_does_not_pay_anothers_payable(trial: Trial) -> None:
    at, venue = "2024-02-21T09:00:00", "XETR"
    trial.feed(
        raw_trades=[
            trade("a1", at, venue, "100"),
            trade("a2", at, venue, "60", side="SELL"),
            trade("b1", at, venue, "70", side="SELL", client="C000002"),
            trade("c1", at, venue, "5", client="C000003"),
            trade("d1", at, "XNSE", "5", side="SELL"),
        ]
    )
    parts = {
        (r["client"], r["currency"]): (r["bought"], r["sold"], r["fees"], r["trades"])
        for r in trial.read("client_due")
    }
    assert parts == {
        ("C000001", "EUR"): (1000, 600, 3, 2),
        ("C000002", "EUR"): (0, 700, Decimal("1.5"), 1),
        ("C000003", "EUR"): (50, 0, Decimal("1.5"), 1),
        ("C000001", "INR"): (0, 50, Decimal("1.5"), 1),
    }
    totals = {
        r["currency"]: (r["payable"], r["receivable"], r["clients"])
        for r in trial.read("client_totals")
    }
    assert totals == {
        "EUR": (Decimal("454.5"), Decimal("698.5"), 3),
        "INR": (0, Decimal("48.5"), 1),
    }
    net = {r["currency"]: r["due"] for r in trial.read("due")}
    assert net == {code: paid - got for code, (paid, got, _) in totals.items()}


def test_a_clients_part_is_reported_as_it_was_and_says_why(trial: Trial) -> None:
    at = "2024-02-21T09:00:00"
    (first,) = trial.feed(raw_trades=[trade("a1", at, "XETR", "100")])
    trial.feed(raw_trades=[trade("a1", at, "XETR", "90", version=2, event="CORRECT")])
    books: Books = trial.books
    key = ("EU-2024-02-23", date(2024, 2, 23), "C000001", "EUR")
    (then,) = books.read("client_due", as_reported=first.at).to_pylist()
    (now,) = books.read("client_due").to_pylist()
    assert (then["bought"], now["bought"]) == (1000, 900)
    revisions = why(books, "client_due", key)
    assert [(r.cause, r.change["bought"]) for r in revisions] == [
        ("on_time", 1000),
        ("correction", -100),
    ]


def test_a_day_of_five_markets_gives_the_oracles_books(tmp_path: Path) -> None:
    markets = named("US,IN,EU,GB,CH")
    write_reference(tmp_path / "reference", (2025, 2026), 200, 300, markets)
    day = Day(5, date(2026, 11, 13), 2_000, clients=300, broken=0.02, corrections=0.05)
    sent = list(simulate(day, read_instruments(tmp_path / "reference" / "instruments.csv")))
    write_truth(sent, tmp_path / "truth.jsonl")
    trial = Trial(pipeline_with(markets="US,IN,EU,GB,CH", client_due="yes"), tmp_path)
    for first in range(0, len(sent), 700):
        trial.feed(raw_trades=[line(one) for one in sent[first : first + 700]])
    found = trade_differences(trial.books, tmp_path / "truth.jsonl", tmp_path / "reference")
    assert found == []
    assert unbalanced(trial.books, full=True) == []
    currencies = {row["currency"] for row in trial.read("running_totals")}
    assert {"USD", "INR", "EUR", "GBP", "CHF"} <= currencies
    opening = min(one.traded_at for one in sent if one.trade_id.startswith("T20261113-IN-")
                  and one.traded_at.date() == day.date)  # fmt: skip
    assert opening.isoformat() >= "2026-11-13T03:45"  # a quarter past nine in Mumbai


def test_books_without_clients_need_one_spark_job_less(tmp_path: Path, spark: Any) -> None:
    write_reference(tmp_path / "reference", (2026, 2026), 60, 20)
    lines = [line(s) for s in simulate(Day(3, date(2026, 11, 13), 400, 60, 20, broken=0.0))]
    jobs = {}
    for word in ("yes", "no"):
        trial = Trial(pipeline_with(client_due=word), tmp_path / word, project=tmp_path)
        trial.feed(raw_trades=lines[:200])  # the first batch also broadcasts the references
        before = max(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        trial.feed(raw_trades=lines[200:])
        after = max(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        jobs[word] = after - before
        assert ("client_due" in trial.plan.pipeline.summaries) == (word == "yes")
    assert jobs == {"yes": 5, "no": 4}
