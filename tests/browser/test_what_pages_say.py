"""What the pages say: state, times with their zone, whole tables, and money in its decimals."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime

from playwright.sync_api import Page, expect

from tapeline.books.stuck import failed_again
from tests.support.brokerage import Brokerage


def test_the_health_page_says_since_when_and_why_publishing_fails(
    fresh: Brokerage, quiet: Page
) -> None:
    since = datetime(2026, 11, 13, 10, tzinfo=UTC)
    stuck = failed_again(None, 7, {"raw_trades": (12, 15)}, "no <b>room</b>", since).as_dict()
    path = fresh.trial.books.layout.status
    facts = {"running": True, "pid": os.getpid(), "batch": 6, "started_at": since.isoformat()}
    path.write_text(json.dumps({**facts, "stuck": stuck}))
    with fresh.served() as address:
        quiet.goto(f"{address}/health")
        banner = quiet.locator("#banner")
        expect(banner).to_contain_text("✗ Publishing has failed since 2026-11-13 10:00 UTC")
        words = "batch 7 (raw_trades tape batches 12 to 15) failed once. Last error: no <b>room"
        expect(banner).to_contain_text(words)
        expect(banner).to_have_attribute("data-state", "bad")
        path.write_text(json.dumps({**facts, "stuck": None}))
        expect(banner).to_have_text("✓ Running since 2026-11-13 10:00 UTC.")
        expect(banner).to_have_attribute("data-state", "good")
        expect(quiet.locator("#incidents")).to_have_text("No problems.")
        incident = {"part": "sink mail", "since": since.isoformat(), "attempts": 3}
        incident |= {"error": "no route", "given_up": True}
        path.write_text(json.dumps({**facts, "incidents": [incident]}))
        expect(banner).to_have_text("✗ Running with 1 problem, listed below.")
        expect(quiet.locator("#incidents")).to_contain_text("stopped retrying")


def test_a_pipeline_that_does_not_run_is_an_error_everywhere_on_the_health_page(
    fresh: Brokerage, quiet: Page
) -> None:
    source = {"position": 3, "lag_records": 5, "lag_seconds": 2.0, "drop_files": 0, "problem": None}
    facts = {
        "running": False,
        "pid": 1,
        "at": "2026-11-13T10:00:00+00:00",
        "records_per_second": 100.0,
        "sources": {"raw_trades": source},
        "paused": {"who": "ada", "at": "2026-11-13T09:00:00+00:00", "note": "audit"},
    }
    fresh.trial.books.layout.status.write_text(json.dumps(facts))
    with fresh.served() as address:
        quiet.goto(f"{address}/health")
        banner = quiet.locator("#banner")
        expect(banner).to_have_text("✗ Not running. Start it with tapeline run.")
        expect(banner).to_have_attribute("data-state", "bad")
        sources = quiet.locator("#sources")
        expect(sources.locator("caption")).to_have_text(
            "Lag when the pipeline last ran, 2026-11-13 10:00 UTC"
        )
        expect(sources.locator("tbody td").nth(3)).to_have_text("not running")
        expect(quiet.locator("#incidents")).to_have_text("The pipeline is not running.")


def test_times_on_a_page_have_a_zone_and_stay_on_one_line(day: str, quiet: Page) -> None:
    quiet.set_viewport_size({"width": 390, "height": 844})
    quiet.goto(f"{day}/exceptions")
    expect(quiet.locator("#samples th", has_text="published (UTC)")).to_have_count(1)
    published = quiet.locator("#samples tbody td", has_text=re.compile(r"^20\d\d-\d\d-\d\d "))
    assert published.first.evaluate("(cell) => getComputedStyle(cell).whiteSpace") == "nowrap"
    quiet.goto(f"{day}/balance")
    expect(quiet.locator("#banner")).to_contain_text(re.compile(r"published 20.* UTC\."))


def test_no_column_of_a_table_is_cut_on_a_desktop(day: str, quiet: Page) -> None:
    quiet.set_viewport_size({"width": 1440, "height": 900})
    for name in ("trade_summary", "settlement", "summary", "exceptions", "balance"):
        quiet.goto(f"{day}/{name}")
        expect(quiet.locator("main tbody tr").first).to_be_visible()
        for table in quiet.locator(".scroll:visible").all():
            assert table.evaluate("(one) => one.scrollWidth - one.clientWidth") <= 0, name


def test_money_has_the_decimals_of_its_currency(day: str, quiet: Page) -> None:
    quiet.goto(f"{day}/settlement")
    rows = quiet.locator("#ladder tbody tr")
    quiet.get_by_label("Currency").select_option("JPY")
    yen = rows.filter(has_text="JPY")
    expect(yen.first.locator("td").nth(3)).to_have_text(re.compile(r"^[\d,]+$"))
    expect(rows.filter(has_text="USD")).to_have_count(0)
    quiet.get_by_label("Currency").select_option("USD")
    fees = rows.filter(has_text="US-2026-11-16").locator("td").nth(6)
    expect(fees).to_have_text(re.compile(r"^[\d,]+\.\d\d$"))
    expect(fees.locator("span")).to_have_attribute("title", re.compile(r"^[\d,]+\.\d{3,}$"))
