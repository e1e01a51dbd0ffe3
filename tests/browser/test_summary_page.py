"""The page of any summary: one measure, one unit, the largest groups, and the current day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tapeline.plan import load_pipeline
from tapeline.settings import Settings
from tapeline.testing import Trial
from tests.support.brokerage import served
from tests.support.waiting import wait_for

PIPELINE = '''
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream

pipeline = Pipeline("shop")
schema = "id string, at timestamp, shop string, currency string, price decimal(10,2)"
pipeline.source("raw", Files("landing/", schema=schema))


@pipeline.table(key="id")
def sales(raw: Stream) -> DataFrame:
    """Every sale."""
    return raw


@pipeline.summary(key=["w", "shop", "currency"], time="w", width="1 hour")
def by_hour(sales: Stream) -> DataFrame:
    """Sales of each hour, by shop."""
    hour = F.window("at", "1 hour").alias("w")
    measures = F.sum("price").alias("money"), F.avg("price").alias("mean_price")
    return sales.groupBy(hour, "shop", "currency").agg(*measures)


@pipeline.summary(key="shop")
def by_shop(sales: Stream) -> DataFrame:
    """Sales of each shop."""
    return sales.groupBy("shop").agg(F.count("*").alias("sales"))
'''
SHOPS = 14


def sales_of(day: str, currency: str = "EUR", shops: int = SHOPS) -> list[dict[str, Any]]:
    """In every hour from 8 to 10 each shop sells once, the n-th for n."""
    return [
        {
            "id": f"{day}-{hour}-{shop}-{currency}",
            "at": f"2026-11-{day}T{hour:02}:15:00Z",
            "shop": f"shop {shop:02}",
            "currency": currency,
            "price": f"{shop}.00",
        }
        for hour in (8, 9, 10)
        for shop in range(1, shops + 1)
    ]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "pipeline.py").write_text(PIPELINE)
    found = load_pipeline(str(folder / "pipeline.py"), Settings(project=folder))
    with Trial(found, folder) as trial:
        trial.feed(raw=sales_of("12"))
        trial.feed(raw=[*sales_of("13"), *sales_of("13", "CHF", shops=2)])
        unpriced = {"id": "none", "at": "2026-11-13T08:20:00Z", "shop": "shop 00"}
        trial.feed(raw=[unpriced | {"currency": "SEK", "price": None}])
        with served(folder, pipeline="pipeline.py") as address:
            yield address


TRACES = """() => document.getElementById("chart").data
    .map((one) => [one.name, one.y.reduce((sum, each) => sum + each, 0)])"""


def traces(page: Page) -> dict[str, float]:
    return dict(page.evaluate(TRACES))


def settled(page: Page, said: str) -> None:
    expect(page.locator("#said")).to_have_text(said)
    expect(page.locator("#chart svg .trace").first).to_be_visible()


TEN = "The 10 largest of 14 groups by money. The rest is added up."


def test_it_starts_with_the_current_day_and_shows_ten_groups_and_the_rest(
    shop: str, quiet: Page
) -> None:
    quiet.goto(f"{shop}/summary")
    settled(quiet, TEN)
    expect(quiet.locator("#day")).to_have_value("2026-11-13")
    expect(quiet.locator("#keys select[name=currency]")).to_have_value("EUR")
    wait_for(lambda: len(traces(quiet)) == 11)
    found = traces(quiet)
    assert next(iter(found)) == "shop 14"
    assert len(found) == 11
    assert found["shop 05"] == 15
    assert found["the rest"] == 3 * (1 + 2 + 3 + 4)
    axis = quiet.evaluate("document.getElementById('chart').layout.yaxis.title.text")
    assert axis == "money (EUR)"
    quiet.locator("#day").fill("")
    quiet.locator("#day").dispatch_event("change")
    expect(quiet.locator("#twin tbody tr")).to_have_count(2 * 3 * SHOPS)
    wait_for(lambda: traces(quiet)["shop 05"] == 30)


def test_one_measure_and_one_unit_are_chosen(shop: str, quiet: Page) -> None:
    quiet.goto(f"{shop}/summary")
    settled(quiet, TEN)
    quiet.locator("#measure").select_option("mean_price")
    settled(
        quiet,
        "The 10 largest of 14 groups by mean price. The others are left out: averages cannot be "
        "added up.",
    )
    wait_for(lambda: len(traces(quiet)) == 10)
    assert traces(quiet)["shop 14"] == 42
    quiet.locator("#keys select[name=currency]").select_option("CHF")
    settled(quiet, "")
    wait_for(lambda: len(traces(quiet)) == 2)
    assert traces(quiet) == {"shop 02": 6, "shop 01": 3}
    expect(quiet.locator("#twin tbody tr")).to_have_count(6)


def test_an_average_of_nothing_is_none(shop: str, quiet: Page) -> None:
    quiet.goto(f"{shop}/summary")
    settled(quiet, TEN)
    quiet.locator("#keys select[name=currency]").select_option("SEK")
    expect(quiet.locator("#twin tbody tr")).to_have_count(1)
    quiet.locator("#twin tbody button").first.click()
    expect(quiet.locator("#why tbody td", has_text="none")).to_have_count(1)


def test_a_summary_without_time_draws_bars(shop: str, quiet: Page) -> None:
    quiet.goto(f"{shop}/summary?name=by_shop")
    settled(quiet, "The 10 largest of 15 groups by sales. The rest is added up.")
    bars = quiet.evaluate("document.getElementById('chart').data[0]")
    assert bars["x"][-1] == "the rest"
    assert sum(map(int, bars["y"])) == 2 * 3 * SHOPS + 6 + 1
    expect(quiet.locator("#of-day")).to_be_hidden()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390)])
def test_it_fits(scheme: Any, width: int, shop: str, browser: Browser, screenshots: Path) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, is_mobile=width < 500
    )
    page = context.new_page()
    page.goto(f"{shop}/summary")
    settled(page, TEN)
    page.screenshot(path=screenshots / f"summary-{scheme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
