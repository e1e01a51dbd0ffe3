"""The page Deliveries: what happened to each file, from the list to its records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokerage import HOSTILE, served
from tests.support.file_desk import FileDesk, lines

PIPELINE = "from tests.support import law_orders\n\npipeline = law_orders.pipeline()\n"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[FileDesk]:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    with FileDesk(tmp_path) as found:
        yield found


def test_the_page_says_what_was_processed_last_what_is_new_and_what_was_rejected(
    desk: FileDesk, tmp_path: Path, quiet: Page, screenshots: Path
) -> None:
    hostile = HOSTILE.replace("/", "")
    bad = '{"id": "' + HOSTILE.replace('"', "'") + '", "amount": "-1"}'
    desk.deliver("prices-2026-11-17.jsonl", lines(1, 2, 3) + bad.encode() + b"\nno json\n")
    desk.deliver(f"{hostile}.jsonl", "{}".encode("utf-16"))
    desk.deliver("empty.jsonl", b"")
    desk.deliver("prices-2026-11-18.jsonl", lines(4, 5, 1))
    desk.send("new.jsonl", lines(6))
    with served(tmp_path, pipeline="pipeline.py") as address:
        quiet.goto(f"{address}/deliveries")
        expect(quiet.locator("#banner")).to_contain_text("✗ 1 rejected file")
        glance = quiet.locator("#glance")
        expect(glance).to_contain_text("processed lastprices-2026-11-18.jsonl")
        expect(glance).to_contain_text("newestnew.jsonl")
        states = quiet.locator("#list tbody tr td:first-child")
        expect(states).to_have_text(["waiting", "booked", "empty", "rejected", "booked"])
        expect(quiet.locator("#list")).to_contain_text(f"{hostile}.jsonl")
        expect(quiet.locator("#list")).to_contain_text("dropped 1, kept 2, quarantined 2")
        quiet.screenshot(path=screenshots / "deliveries.png", full_page=True)
        quiet.get_by_label("State").select_option("rejected")
        expect(states).to_have_text(["rejected"])
        quiet.locator("#list tbody button").focus()
        quiet.keyboard.press("Enter")
        expect(quiet.locator("#one h2")).to_be_focused()
        expect(quiet.locator("#one")).to_contain_text("tapeline deliveries retry raw:rejected:1")
        quiet.get_by_label("State").select_option("all")
        quiet.get_by_role("button", name="prices-2026-11-17.jsonl").first.click()
        expect(quiet.locator("#one tbody tr")).to_have_count(5)
        quiet.get_by_role("button", name="quarantined").click()
        expect(quiet.locator("#one tbody tr")).to_have_count(2)
        expect(quiet.locator("#one")).to_contain_text("the record is not a JSON object")
        expect(quiet.locator("#one")).to_contain_text("onerror")
        expect(quiet.locator("img")).to_have_count(0)
        quiet.screenshot(path=screenshots / "deliveries-one.png", full_page=True)
        desk.take()
        desk.book()
        expect(glance).to_contain_text("processed lastnew.jsonl")


def test_a_phone_in_dark_mode_shows_the_page_without_scrolling_sideways(
    desk: FileDesk, tmp_path: Path, browser: Browser, screenshots: Path
) -> None:
    desk.deliver("a-file-with-a-rather-long-name-2026-11-17-prices.jsonl", lines(1, 2, 3))
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, color_scheme="dark"
    )
    page = context.new_page()
    with served(tmp_path, pipeline="pipeline.py") as address:
        page.goto(f"{address}/deliveries")
        expect(page.locator("#list tbody tr")).to_have_count(1)
        page.locator("#list tbody button").first.click()
        expect(page.locator("#one tbody tr")).to_have_count(3)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.screenshot(path=screenshots / "deliveries-phone.png", full_page=True)
    context.close()
