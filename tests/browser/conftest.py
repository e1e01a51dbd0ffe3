"""A real browser: Debian's Chromium, driven by Playwright, which fetches none of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect

from tapeline.trades.lines import line
from tapeline.trades.simulator import Day, simulate
from tests.support.brokerage import Brokerage, trade

expect.set_options(timeout=20_000)
SCREENSHOTS = Path(__file__).parents[2] / ".screenshots"
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        missing = "there is no Chromium: 'apt-get install chromium', or run 'make test' as root"
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    return {"executable_path": found, "args": ARGUMENTS.split(), "headless": True}


@pytest.fixture
def fresh(tmp_path: Path, spark: Any) -> Brokerage:
    """Books of one's own, to be fed."""
    return Brokerage(tmp_path)


@pytest.fixture(scope="session")
def day(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[str]:
    """The address of a server that shows a simulated day, most of it, with a restated window."""
    made = Brokerage(tmp_path_factory.mktemp("day"))
    made.feed(trade("early", "11 14:35"))
    lines = [line(one) for one in simulate(Day(5, date(2026, 11, 13), 4_000, corrections=0.02))]
    size = len(lines) // 10
    for first in range(0, len(lines), size):
        made.feed(*lines[first : first + size])
    made.feed(trade("restates", "11 14:40"))
    with made.served() as address:
        yield address


@pytest.fixture(scope="session")
def screenshots() -> Path:
    SCREENSHOTS.mkdir(exist_ok=True)
    return SCREENSHOTS


@pytest.fixture
def quiet(page: Page) -> Iterator[Page]:
    """A page whose console must stay empty: no error, no blocked script or style."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))

    def heard(said: ConsoleMessage) -> None:
        if said.type == "error":
            problems.append(said.text)

    page.on("console", heard)
    page.set_default_timeout(30_000)
    yield page
    away = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "Failed to fetch", "ERR_NETWORK")
    assert [text for text in problems if not any(word in text for word in away)] == []
