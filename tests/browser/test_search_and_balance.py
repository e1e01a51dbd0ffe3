"""A record is found by its id, and figures are cumulative, apart for each currency."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokerage import HOSTILE, Brokerage, trade


def test_a_record_is_found_by_its_id(fresh: Brokerage, quiet: Page) -> None:
    fresh.feed(trade("a", "13 14:35", price="30"), trade(HOSTILE, "13 14:36"))
    fresh.feed(trade("a", "13 14:35", price="31", version=2, event="CORRECT"))
    fresh.feed('{"trade_id": "broken-1", "price": ')
    with fresh.served() as address:
        quiet.goto(f"{address}/search")
        rows = quiet.locator("#found tbody tr")
        quiet.get_by_label("Record key").fill("a")
        quiet.keyboard.press("Enter")
        expect(quiet.locator("#said")).to_have_text("4 verdicts on records with the key a.")
        words = "kept: counts", "no longer: kept", "superseded", "kept: counts"
        for place, word in enumerate(words):
            expect(rows.nth(place)).to_contain_text(word)
        expect(rows.first).to_contain_text("line 1")
        quiet.goto(f"{address}/search?key=broken-1")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("in quarantine")
        quiet.get_by_label("Record key").fill(HOSTILE)
        quiet.keyboard.press("Enter")
        expect(rows.first).to_contain_text(HOSTILE)
        quiet.get_by_label("Record key").fill("nobody")
        quiet.keyboard.press("Enter")
        expect(quiet.locator("#said")).to_have_text(
            "No record with the key nobody has been published."
        )


def test_figures_are_apart_for_each_currency(day: str, quiet: Page) -> None:
    quiet.goto(f"{day}/balance")
    figures = quiet.locator("[data-summary=trade_summary] tbody tr")
    expect(figures.filter(has_text="USD")).to_have_count(1)
    expect(figures.filter(has_text="JPY")).to_have_count(1)
    yen = figures.filter(has_text="JPY").locator("td").nth(1)
    expect(yen).to_have_text(re.compile(r"^[\d,]+$"))  # in the currency's decimals
    total = quiet.evaluate(
        "fetch('/api/read/trade_summary?group=currency&sum=total_buy').then((a) => a.json())"
    )
    dollars = next(row["total_buy"] for row in total["rows"] if row["currency"] == "USD")
    shown = figures.filter(has_text="USD").locator("td").nth(1).inner_text()
    assert shown.replace(",", "").rstrip("0") == dollars.rstrip("0")
    expect(quiet.locator(".flow .journal").first).to_contain_text(re.compile(r"entries\s*[\d,]+"))


def test_no_column_of_a_summary_is_cut(day: str, quiet: Page) -> None:
    quiet.set_viewport_size({"width": 1280, "height": 900})
    for name in ("summary", "trade_summary"):
        quiet.goto(f"{day}/{name}")
        expect(quiet.locator("#twin tbody tr").first).to_be_visible()
        cut = "(one) => one.scrollWidth - one.clientWidth"
        assert quiet.locator("#twin").evaluate(cut) <= 1, name


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390)])
@pytest.mark.parametrize("name", ["balance", "search?key=restates", "exceptions", "summary"])
def test_pages_fit(
    name: str, scheme: Any, width: int, day: str, browser: Browser, screenshots: Path
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, is_mobile=width < 500
    )
    page = context.new_page()
    page.goto(f"{day}/{name}")
    expect(page.locator("main tbody tr").first).to_be_visible()
    file = f"{name.partition('?')[0]}-{scheme}-{width}.png"
    page.screenshot(path=screenshots / f"day-{file}", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
