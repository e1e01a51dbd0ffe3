"""The pages as people use them, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tapeline.plan import load_pipeline
from tapeline.settings import Settings
from tapeline.testing import Trial
from tapeline.trades.markets import named
from tapeline.trades.reference import make_instruments
from tests.brokerage import HOSTILE, Brokerage, opening_day, served, trade
from tests.docs.pages import START, files

expect.set_options(timeout=20_000)
SLOW = 30_000


@pytest.fixture
def quiet(page: Page) -> Iterator[Page]:
    """A page on which nothing may go wrong: no error, no refused script or style."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))

    def heard(said: ConsoleMessage) -> None:
        # The chart library brings a style for maps, which the policy refuses and nobody needs.
        maps = "inline style" in said.text and said.location["url"].endswith("plotly.min.js")
        if said.type == "error" and not maps:
            problems.append(said.text)

    page.on("console", heard)
    page.set_default_timeout(SLOW)
    yield page
    away = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "Failed to fetch", "ERR_NETWORK")
    assert [text for text in problems if not any(word in text for word in away)] == []


def cell(page: Page, window: str, place: int) -> str:
    row = page.locator("#twin tbody tr", has=page.get_by_role("button", name=window, exact=True))
    return row.locator("td").nth(place).inner_text()


def drawn(page: Page) -> int:
    return int(page.locator("#chart").get_attribute("data-drawn") or 0)


def test_the_chart_draws_and_moves_when_a_batch_commits(fresh: Brokerage, quiet: Page) -> None:
    fresh.feed(trade("a", "13 14:35", price="30"))
    with fresh.served() as address:
        quiet.goto(address)
        expect(quiet.locator("#chart svg .trace").first).to_be_visible()
        expect(quiet.locator("#twin tbody tr")).to_have_count(1)
        assert cell(quiet, "09:30", 1) == "300.00"
        before = drawn(quiet)
        fresh.feed(trade("b", "13 14:50", "SELL", price="12.345678"))
        expect(quiet.locator("#twin tbody tr")).to_have_count(2)
        assert cell(quiet, "09:45", 2) == "123.46"
        assert drawn(quiet) > before
        expect(quiet.locator("#live")).to_contain_text("batch 2")


def test_an_empty_brokerage_says_what_to_do(fresh: Brokerage, quiet: Page) -> None:
    with fresh.served() as address:
        quiet.goto(address)
        expect(quiet.locator("#twin")).to_contain_text("Drop a file of trades")
        for page in ("settlement", "summary", "exceptions", "balance", "health"):
            quiet.goto(f"{address}/{page}")
            expect(quiet.locator("main .empty").first).to_be_visible()


def test_any_pipeline_has_pages_without_a_line_of_html(
    tmp_path: Path, spark: Any, quiet: Page
) -> None:
    """The coffee shops of the ten minutes, which know nothing of trades."""
    (tmp_path / "pipeline.py").write_text(files(START)["pipeline.py"])
    settings = Settings(project=tmp_path)
    trial = Trial(load_pipeline(str(tmp_path / "pipeline.py"), settings), tmp_path)
    sale = {"sale_id": "s1", "sold_at": "2026-03-02T08:05:00Z", "shop": "north", "cups": 2}
    trial.feed(raw_sales=[sale | {"price": "3.20"}])
    with served(tmp_path, str(tmp_path / "pipeline.py")) as address:
        quiet.goto(address)
        expect(quiet).to_have_url(f"{address}/summary")
        expect(quiet.locator("#twin tbody tr")).to_have_count(1)
        expect(quiet.locator("#twin")).to_contain_text("6.40")
        trial.feed(raw_sales=[sale | {"sale_id": "s2", "shop": "south", "price": "2.90"}])
        expect(quiet.locator("#twin tbody tr")).to_have_count(2)
        expect(quiet.locator("#twin")).to_contain_text("5.80")
        for page in ("exceptions", "balance", "health"):
            quiet.goto(f"{address}/{page}")
            expect(quiet.locator("#banner")).not_to_contain_text("Reading")


def test_a_late_trade_marks_its_window_and_the_click_explains_it(
    fresh: Brokerage, quiet: Page
) -> None:
    opening_day(fresh)
    with fresh.served() as address:
        quiet.goto(address)
        quiet.locator("#day").select_option("2026-11-12")
        row = quiet.locator("#twin tbody tr", has_text="restated")
        expect(row).to_have_count(1)
        expect(row.locator("span[title]")).to_have_attribute(
            "title", "restated, late: buy 300.00 → 410.00 (+110.00)"
        )
        row.get_by_role("button").click()
        why = quiet.locator("#why")
        expect(why).to_contain_text("late")
        expect(why).to_contain_text("300.00 → 410.00 (+110.00)")
        why.get_by_role("button", name="entries").last.click()
        expect(why).to_contain_text("a4")
        quiet.keyboard.press("Escape")
        expect(why).to_be_hidden()


def test_a_click_on_the_chart_opens_the_window(fresh: Brokerage, quiet: Page) -> None:
    opening_day(fresh)
    with fresh.served() as address:
        quiet.goto(address)
        quiet.locator("#day").select_option("2026-11-12")
        point = quiet.locator("#chart .scatterlayer .trace").first.locator(".point").first
        expect(point).to_be_visible()
        box = point.bounding_box()
        assert box is not None
        quiet.mouse.move(box["x"] + box["width"] / 2 - 3, box["y"] + box["height"] / 2)
        quiet.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=5)
        quiet.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(quiet.locator("#why")).to_contain_text("Revisions of 09:30")


def test_the_slider_shows_the_old_number(fresh: Brokerage, quiet: Page) -> None:
    opening_day(fresh)
    with fresh.served() as address:
        quiet.goto(address)
        expect(quiet.locator("#twin tbody tr").first).to_be_visible()
        assert cell(quiet, "09:30", 1) == "310.00"
        quiet.locator("#then").check()
        quiet.locator("#slider").fill("0")  # the moment of the first publication: the day before
        expect(quiet.locator("#twin")).to_contain_text("reported then")
        quiet.locator("#day").select_option("2026-11-12")
        expect(quiet.locator("#twin caption")).to_contain_text("differs")
        row = quiet.locator("#twin tbody tr").first
        expect(row).to_contain_text("410.00 ≠")
        expect(row).to_contain_text("300.00")


def test_the_page_heals_when_the_server_comes_back(fresh: Brokerage, quiet: Page) -> None:
    fresh.feed(trade("a", "13 14:35", price="30"))
    with fresh.served() as address:
        port = urlsplit(address).port or 0
        quiet.goto(address)
        expect(quiet.locator("#twin tbody tr")).to_have_count(1)
    expect(quiet.locator("#live")).to_contain_text("connection lost")
    fresh.feed(trade("b", "13 14:50", price="2"))
    with fresh.served(port=port):
        expect(quiet.locator("#twin tbody tr")).to_have_count(2, timeout=SLOW)
        expect(quiet.locator("#live")).to_contain_text("batch 2")


def test_hostile_text_stays_text(fresh: Brokerage, quiet: Page) -> None:
    opening_day(fresh)
    with fresh.served() as address:
        quiet.goto(f"{address}/exceptions")
        quiet.get_by_role("button", name="raw_trades:2:8").click()
        expect(quiet.locator("#one")).to_contain_text("onerror")
        quiet.goto(address)
        expect(quiet.locator("#twin tbody tr").first).to_be_visible()
        quiet.get_by_role("button", name="09:45", exact=True).click()
        quiet.locator("#why").get_by_role("button", name="entries").click()
        expect(quiet.locator("#why")).to_contain_text(HOSTILE)
        assert quiet.locator("main img").count() == 0
        assert "taken" not in quiet.title()


def test_everything_can_be_reached_by_keyboard(day: str, quiet: Page) -> None:
    quiet.goto(day)
    expect(quiet.locator("#twin tbody tr").first).to_be_visible()
    quiet.locator("#currency").focus()
    reached = set()
    for _ in range(30):
        quiet.keyboard.press("Tab")
        reached.add(quiet.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"terminal", "then", "twin", "plain"} <= reached
    quiet.locator("#twin tbody button").first.focus()
    quiet.keyboard.press("Enter")
    expect(quiet.locator("#why h2")).to_be_focused()


@pytest.mark.parametrize("name", ["trade_summary", "settlement", "exceptions", "balance", "health"])
def test_a_phone_shows_every_page_without_scrolling_sideways(
    name: str, day: str, browser: Browser
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True)
    page = context.new_page()
    page.goto(f"{day}/{name}")
    expect(page.locator("main table, main .empty").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


@pytest.mark.parametrize(
    ("name", "scheme", "size"),
    [
        ("light", "light", (1440, 900)),
        ("dark", "dark", (1440, 900)),
        ("phone", "light", (390, 844)),
    ],
)
def test_screenshots(
    name: str, scheme: str, size: tuple[int, int], day: str, browser: Browser, screenshots: Path
) -> None:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page = context.new_page()
    page.goto(day)
    expect(page.locator("#twin tbody tr").nth(5)).to_be_visible()
    expect(page.locator("#chart svg .trace").first).to_be_visible()
    page.screenshot(path=screenshots / f"trade_summary-{name}.png")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is (scheme == "light")
    context.close()


def test_the_other_pages_show_the_day(day: str, quiet: Page, screenshots: Path) -> None:
    for name, words in {
        "settlement": "US-2026-11-16",
        "summary": "trade_summary",
        "exceptions": "records wait for somebody to decide",
        "balance": "✓ The books balance",
        "health": "The pipeline does not run",
    }.items():
        quiet.goto(f"{day}/{name}")
        expect(quiet.locator("main")).to_contain_text(words)
        quiet.screenshot(path=screenshots / f"{name}.png")


def test_the_ladder_is_broken_down_by_client(day: str, quiet: Page) -> None:
    quiet.goto(f"{day}/settlement")
    quiet.get_by_role("button", name="by client").first.click()
    expect(quiet.locator("#clients")).to_contain_text(re.compile(r"Payable [\d,.]+, receivable"))


def test_each_market_is_shown_in_its_own_day_and_currency(
    tmp_path: Path, spark: Any, quiet: Page
) -> None:
    listed = {one.venue: one.symbol for one in make_instruments(60, named("US,IN"))}
    brokerage = Brokerage(tmp_path, markets="US,IN", client_due="yes")
    rupees = {"instrument": listed["XNSE"], "currency": "INR"}
    brokerage.feed(
        trade("i1", "13 04:00", price="100", **rupees),  # still the 12th in New York
        trade("i2", "13 09:00", price="10", **rupees),
        trade("i3", "13 09:05", "SELL", price="30", client="C000002", **rupees),
        trade("u1", "13 15:00", price="7", instrument=listed["XNYS"]),
    )
    with brokerage.served() as address:
        quiet.goto(address)
        expect(quiet.locator("#twin caption")).to_contain_text("USD, times of America/New_York")
        expect(quiet.locator("#twin tbody tr")).to_have_count(1)
        quiet.get_by_label("Currency").select_option("INR")
        expect(quiet.locator("#twin caption")).to_contain_text("INR, times of Asia/Kolkata")
        expect(quiet.locator("#twin tbody tr")).to_have_count(2)
        assert cell(quiet, "09:30", 1) == "1,000.00"
        assert cell(quiet, "14:30", 1) == "1,100.00"
        quiet.goto(f"{address}/settlement")
        quiet.get_by_label("Currency").select_option("INR")
        ladder = quiet.locator("#ladder tbody tr", has_text="IN-T2026-11-13")
        expect(ladder).to_have_count(1)
        ladder.get_by_role("button", name="by client").click()
        clients = quiet.locator("#clients")
        expect(clients).to_contain_text("Payable 1,103.00, receivable 298.50, 2 clients")
        clients.get_by_role("button", name="C000002").click()
        expect(quiet.locator("#why")).to_contain_text("C000002")
        expect(quiet.locator("#why tbody tr").first).to_contain_text("300.00")


def test_a_browser_logs_in_with_the_token(fresh: Brokerage, quiet: Page) -> None:
    fresh.feed(trade("a", "13 14:35", price="30"))
    token_file = fresh.folder / "token"
    with fresh.served("--token-file", str(token_file)) as address:
        quiet.goto(address)
        quiet.get_by_label("Token").fill(token_file.read_text().strip())
        quiet.get_by_role("button", name="Log in").click()
        expect(quiet.locator("#twin tbody tr")).to_have_count(1)
        expect(quiet.locator("#live")).to_contain_text("live")
