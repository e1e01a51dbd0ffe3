"""The pages as people use them, in a real browser."""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tapeline.plan import load_pipeline
from tapeline.settings import Settings
from tapeline.testing import Trial
from tapeline.trades.markets import named
from tapeline.trades.reference import make_instruments
from tests.support.brokerage import HOSTILE, Brokerage, opening_day, served, trade
from tests.support.doc_pages import START, files

SLOW = 30_000
ENTRIES = re.compile(r"^\d+ entr(y|ies)$")


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
        expect(quiet.locator("#twin")).to_contain_text("Put a file of trades")
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
    with served(tmp_path, pipeline="pipeline.py") as address:
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


def test_a_number_beyond_its_type_is_shown_to_the_last_digit(
    tmp_path: Path, spark: Any, quiet: Page
) -> None:
    (tmp_path / "pipeline.py").write_text(
        "from pyspark.sql import DataFrame\n"
        "from pyspark.sql import functions as F\n"
        "from tapeline import Files, Pipeline, Stream\n"
        "pipeline = Pipeline('large')\n"
        "schema = 'id string, shop string, n bigint, m decimal(38,16)'\n"
        "pipeline.source('raw', Files('landing/', schema=schema))\n"
        "@pipeline.table(key='id')\n"
        "def rows(raw: Stream) -> DataFrame:\n"
        "    return raw\n"
        "@pipeline.summary(key='shop')\n"
        "def totals(rows: Stream) -> DataFrame:\n"
        "    return rows.groupBy('shop').agg(F.sum('n').alias('n'), F.sum('m').alias('m'))\n"
    )
    settings = Settings(project=tmp_path)
    trial = Trial(load_pipeline(str(tmp_path / "pipeline.py"), settings), tmp_path)
    # At and beyond the limits of both types, and of JavaScript's numbers, on both sides of zero.
    most, small = "9999999999999999999999.9999999999999999", "0.0000000000000001"
    numbers = {
        "one": (2**63 - 1, most),
        "two": (-(2**63), f"-{most}"),
        "exact": (2**53 + 1, small),
    }
    expected = {}
    for shop, (whole, money) in numbers.items():
        some = {"shop": shop, "n": whole, "m": money}
        trial.feed(raw=[{"id": f"{shop} {n}", **some} for n in range(3)])
        with localcontext(prec=100):
            expected[shop] = [f"{3 * whole:,}", f"{3 * Decimal(money):,f}"]
    with served(tmp_path, pipeline="pipeline.py") as address:
        quiet.goto(f"{address}/summary")
        for shop, cells in expected.items():
            row = quiet.locator("#twin tbody tr", has_text=shop)
            for cell in cells:
                expect(row.get_by_text(cell, exact=True)).to_be_visible()


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
        why.get_by_role("button", name=ENTRIES).last.click()
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
        expect(quiet.locator("#why")).to_contain_text("Revisions of 09:30 America/New_York")


def test_the_slider_shows_the_old_number(fresh: Brokerage, quiet: Page) -> None:
    opening_day(fresh)
    with fresh.served() as address:
        quiet.goto(address)
        expect(quiet.locator("#twin tbody tr").first).to_be_visible()
        assert cell(quiet, "09:30", 1) == "310.00"
        quiet.locator("#then").check()
        quiet.locator("#slider").fill("0")  # the moment of the first publication: the day before
        expect(quiet.locator("#twin")).to_contain_text("as reported")
        expect(quiet.locator("#moment")).to_contain_text("America/New_York")
        quiet.locator("#day").select_option("2026-11-12")
        expect(quiet.locator("#twin caption")).to_contain_text("have changed since")
        row = quiet.locator("#twin tbody tr").first
        expect(row).to_contain_text("410.00 ≠")
        expect(row).to_contain_text("300.00")
        figure = quiet.locator("#figures dd.buy")  # follows the slider: 372.50 less the late 110.00
        expect(figure).to_have_text("372.50")
        quiet.locator("#then").uncheck()
        expect(figure).to_have_text("482.50")


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
        quiet.locator("#why").get_by_role("button", name=ENTRIES).click()
        expect(quiet.locator("#why")).to_contain_text(HOSTILE)
        assert quiet.locator("main img").count() == 0
        assert "taken" not in quiet.title()


LINK = '<a href="https://evil.example/">pay here</a><b>!</b>&lt;i&gt;'
CHARTS = """
async ([text, timed]) => {
  const { byId, draw } = await import("/static/tapeline.js");
  const x = timed ? ["2026-11-13T14:30:00Z", "2026-11-13T14:45:00Z"] : [text, `${text} 2`];
  const trace = { type: timed ? "scatter" : "bar", name: text, x, y: [1, 2], text: [text, text],
                  customdata: [[text], [text]], hovertemplate: "%{customdata[0]}" };
  const layout = { title: { text }, showlegend: true, xaxis: { title: { text } },
                   yaxis: { title: text }, annotations: [{ text, x: x[0], y: 1 }] };
  await draw(byId("chart"), [trace], layout);
  Plotly.Fx.hover(byId("chart"), [{ curveNumber: 0, pointNumber: 0 }]);
}
"""


@pytest.mark.parametrize("timed", [True, False], ids=["over time", "by name"])
def test_labels_of_a_chart_are_text(timed: bool, tmp_path: Path, page: Page) -> None:
    """Whatever a page draws: names, categories, titles, annotations and what a hover says."""
    with served(tmp_path) as address:
        page.goto(f"{address}/summary")
        page.evaluate(CHARTS, [LINK, timed])
        hover = page.locator("#chart .hoverlayer")
        expect(hover).to_contain_text("pay here")
        shown = page.locator("#chart").evaluate("(chart) => chart.textContent")
        assert shown.count('<a href="https://evil.example/">') >= 5
        assert "&lt;i&gt;" in shown  # what looked escaped is shown as it came
        assert page.locator("#chart").locator("css=a[href], svg a").count() == 0


def test_hostile_names_in_a_summary_are_text_in_its_chart(
    tmp_path: Path, spark: Any, quiet: Page
) -> None:
    (tmp_path / "pipeline.py").write_text(files(START)["pipeline.py"])
    settings = Settings(project=tmp_path)
    trial = Trial(load_pipeline(str(tmp_path / "pipeline.py"), settings), tmp_path)
    sale = {"sale_id": "s1", "sold_at": "2026-03-02T08:05:00Z", "shop": LINK, "cups": 2}
    trial.feed(raw_sales=[sale | {"price": "3.20"}, sale | {"sale_id": "s2", "price": "1.00"}])
    with served(tmp_path, pipeline="pipeline.py") as address:
        quiet.goto(f"{address}/summary")
        expect(quiet.locator("#chart")).to_contain_text("pay here", ignore_case=True)
        assert quiet.locator("#chart").locator("css=a[href], svg a").count() == 0
        expect(quiet.locator("#twin")).to_contain_text(LINK, ignore_case=True)


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
    for link in page.locator("nav a").all():
        box = link.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= 390 - box["width"]
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
        "exceptions": "records need review",
        "balance": "✓ The books balance",
        "health": "Not running",
    }.items():
        quiet.goto(f"{day}/{name}")
        expect(quiet.locator("main")).to_contain_text(words)
        quiet.screenshot(path=screenshots / f"{name}.png")
        expect(quiet.locator("#live")).to_contain_text(
            re.compile(r"batch \d+ · last update 20\d\d-")
        )


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
        expect(quiet.locator("#twin caption")).to_contain_text("USD, times in America/New_York")
        expect(quiet.locator("#twin tbody tr")).to_have_count(1)
        quiet.get_by_label("Currency").select_option("INR")
        expect(quiet.locator("#twin caption")).to_contain_text("INR, times in Asia/Kolkata")
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


def test_a_page_offers_what_its_reader_may_do(
    fresh: Brokerage, quiet: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.feed("not JSON")
    monkeypatch.setenv("TAPELINE_SERVE_ACTS", "yes")
    monkeypatch.setenv("TAPELINE_SERVE_TOKENS", "ada:act:ada, guest:read:guest")
    with fresh.served() as address:
        for name, acts in {"guest": False, "ada": True}.items():
            quiet.goto(f"{address}/exceptions")
            quiet.get_by_label("Token").fill((fresh.folder / name).read_text().strip())
            quiet.get_by_role("button", name="Log in").click()
            expect(quiet.locator("#me")).to_contain_text(name)
            quiet.goto(f"{address}/exceptions")
            expect(quiet.locator("#samples tbody tr")).to_have_count(1)
            expect(quiet.locator("#reads")).to_be_visible(visible=not acts)
            expect(quiet.locator("#acts")).to_be_visible(visible=acts)
            expect(quiet.locator("#samples tbody input")).to_have_count(int(acts))
            if acts:
                quiet.get_by_role("button", name="Dismiss selected").click()
                expect(quiet.locator("#done")).to_have_text("Select at least one record first.")
                quiet.locator("#samples tbody input").check()
                quiet.get_by_role("button", name="Dismiss selected").click()
                expect(quiet.locator("#done")).to_contain_text("Saved: dismiss 1 record.")
                quiet.get_by_role("button", name="raw_trades:1:0", exact=True).click()
                expect(quiet.locator("#one")).to_contain_text("dismiss by ada")
            quiet.get_by_role("button", name="Log out").click()
            expect(quiet).to_have_url(f"{address}/login")


def test_a_browser_logs_in_with_the_token(fresh: Brokerage, quiet: Page) -> None:
    fresh.feed(trade("a", "13 14:35", price="30"))
    token_file = fresh.folder / "token"
    with fresh.served("--token-file", str(token_file)) as address:
        quiet.goto(address)
        quiet.get_by_label("Token").fill(token_file.read_text().strip())
        quiet.get_by_role("button", name="Log in").click()
        expect(quiet.locator("#twin tbody tr")).to_have_count(1)
        expect(quiet.locator("#live")).to_contain_text("connected")
