"""Pages of a pipeline's own, and the facts that their scripts are told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from tapeline import DeclarationError
from tapeline.serve.pages import framed, pages_of
from tapeline.settings import Settings
from tapeline.testing import plan_of
from tests.support.brokerage import HOSTILE

PIPELINE = """
from tapeline import Files, Pipeline, Stream

pipeline = Pipeline("sales")
pipeline.source("raw_sales", Files("drop/", format="json", schema="sale_id string"))


@pipeline.table(key="sale_id")
def sales(raw_sales: Stream):
    return raw_sales


pipeline.page("Sales", "shop.html", {facts})
"""


class Content(HTMLParser):
    """The attributes of the element around a page, and every tag, as a browser reads them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.facts: dict[str, str | None] = {}
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "main":
            self.facts = dict(attrs)


def page_with(folder: Path, facts: str) -> Content:
    (folder / "pipeline.py").write_text(PIPELINE.format(facts=facts))
    (folder / "shop.html").write_text("<h1>Shop</h1>")
    (folder / "shop.js").write_text("")
    plan = plan_of("pipeline.py", Settings(project=folder))
    shown = pages_of(plan)
    return Content(framed(plan, shown, shown["shop"]))


def test_a_pages_facts_are_data_attributes_around_it(tmp_path: Path) -> None:
    found = page_with(tmp_path, "zone='Europe/Paris', main_currency='EUR'")
    assert found.facts == {
        "id": "content", "data-zone": "Europe/Paris", "data-main-currency": "EUR",
    }  # fmt: skip
    assert page_with(tmp_path, "").facts == {"id": "content"}


@pytest.mark.parametrize("text", [HOSTILE, '"><script>alert(1)</script>', "{{content}}", "'\"&<"])
def test_hostile_text_in_a_fact_stays_text(tmp_path: Path, text: str) -> None:
    plain, hostile = page_with(tmp_path, "shop='x'"), page_with(tmp_path, f"shop={text!r}")
    assert hostile.facts["data-shop"] == text
    assert hostile.tags == plain.tags


def test_a_fact_that_cannot_be_an_attribute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"pipeline.py:13: 'onClick=' cannot be a name"):
        page_with(tmp_path, "**{'onClick=': 'x'}")


def test_the_brokerages_pages_know_its_zone_and_main_currency(address: str) -> None:
    for name in ("trade_summary", "settlement"):
        facts = Content(httpx.get(f"{address}/{name}").text).facts
        assert facts["data-zone"] == "America/New_York"
        assert facts["data-main-currency"] == "USD"


def test_options_reach_the_pages(tmp_path: Path) -> None:
    """In a process of its own: options are read when the module is imported first."""
    program = (
        "from tapeline.trades import pipeline\n"
        "print(dict(pipeline.pages['trade_summary'].facts), list(pipeline.summaries))"
    )
    said = {
        "TAPELINE_PIPELINE_TRADES_MARKETS": "IN,US",
        "TAPELINE_PIPELINE_TRADES_CLIENT_DUE": "yes",
    }

    def run(**environment: str) -> Any:
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    out = run(**said).stdout
    assert re.search(r"'zone': 'Asia/Kolkata'.*'main_currency': 'INR'", out)
    assert "'settlement_due', 'client_due']" in out
    assert "'trade_summary', 'settlement_due']" in run().stdout
    both = run(**said, TAPELINE_PIPELINE_TRADES_MAIN_CURRENCY="USD").stdout
    assert "'main_currency': 'USD'" in both
    nowhere = run(TAPELINE_PIPELINE_TRADES_ZONE="Asia/Nowhere")
    assert "trades.zone: 'Asia/Nowhere' is not a time zone" in nowhere.stderr
    wrong = run(TAPELINE_PIPELINE_TRADES_CLIENT_DUE="maybe")
    assert "trades.client_due must be yes or no, not 'maybe'" in wrong.stderr
