"""A small brokerage whose books tests serve: real Spark and Delta, batch by batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from tapeline.declare import Pipeline
from tapeline.plan import load_pipeline
from tapeline.settings import Settings
from tapeline.testing import Trial
from tapeline.trades import pipeline as declared
from tapeline.trades.markets import named
from tapeline.trades.reference import write_reference

HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
COMMAND = [sys.executable, "-m", "tapeline"]
FILE = str(declared.pages["settlement"].html.parents[1] / "pipeline.py")


@cache
def pipeline_with(**options: str) -> Pipeline:
    """The trades application with other options than the imported module's; one for each."""
    return load_pipeline(FILE, Settings(pipeline={"trades": options}))


def trade(
    trade_id: str, at: str, side: str = "BUY", price: str = "10", **more: Any
) -> dict[str, Any]:
    """A trade of ten shares on a day of November 2026, such as "13 14:35"."""
    day, clock = at.split()
    return {
        "trade_id": trade_id,
        "version": 1,
        "event": "NEW",
        "traded_at": f"2026-11-{day}T{clock}:00Z",
        "side": side,
        "instrument": "ZKTF",
        "quantity": "10",
        "price": price,
        "currency": "USD",
        "client": "C000001",
        "terminal": "WEB",
        "fees": "1.50",
        **more,
    }


class Brokerage:
    """Books that grow when a test says so, of the trades application with some options."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        markets = named(options.get("markets", "US"))
        write_reference(folder / "reference", years=(2026, 2026), markets=markets)
        lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
        if lines:
            (folder / "tapeline.toml").write_text("\n".join(["[pipeline.trades]", *lines]))
        self.trial = Trial(pipeline_with(**options), folder)

    def feed(self, *trades: dict[str, Any] | str | bytes) -> int:
        """One batch; gives back its number."""
        (published,) = self.trial.feed(raw_trades=trades)
        return published.batch

    @contextmanager
    def served(self, *words: str, port: int = 0, stderr: Any = subprocess.DEVNULL) -> Iterator[str]:
        """`tapeline serve` of these books; gives its address."""
        with served(self.folder, *words, port=port, stderr=stderr) as address:
            yield address


@contextmanager
def served(
    folder: Path,
    *words: str,
    pipeline: str = "tapeline.trades",
    port: int = 0,
    stderr: Any = subprocess.DEVNULL,
) -> Iterator[str]:
    """`tapeline serve` in a process of its own, on any free port; gives its address."""
    places = ["--project", str(folder), "--root", str(folder / "books")]
    child = subprocess.Popen(
        [*COMMAND, "serve", pipeline, *places, "--port", str(port), "--json", *words],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
    )
    try:
        assert child.stdout is not None
        text = ""
        while "}" not in text:
            line = child.stdout.readline()
            assert line, "the server ended before it said its address"
            text += line
        yield json.loads(text)["address"]
    finally:
        child.terminate()
        child.wait(20)
        if child.stdout:
            child.stdout.close()


def opening_day(brokerage: Brokerage) -> None:
    """Two days of trading: a late trade that restates a window, a correction, and bad records."""
    brokerage.feed(
        trade("a1", "12 14:35", price="30"),
        trade("a2", "12 14:50", "SELL", price="20", terminal="DESKTOP"),
        trade("a3", "12 15:05", price="7.25", terminal="MOBILE"),
    )
    brokerage.feed(
        trade("b1", "13 14:35", price="30"),
        trade("b2", "13 14:40", "SELL", price="12", terminal="DESKTOP"),
        trade("b3", "13 14:52", "SELL", price="4", terminal="MOBILE", client="C000002"),
        trade(HOSTILE, "13 14:53", price="5"),
        trade("b5", "13 20:05", price="1"),
        trade("b5", "13 20:05", price="1"),
        "this is not JSON",
        trade("b6", "13 14:55", price="-1"),
        trade("b7", "13 14:56", instrument=HOSTILE),
    )
    brokerage.feed(trade("b1", "13 14:35", price="31", version=2, event="CORRECT"))
    brokerage.feed(trade("a4", "12 14:40", price="11"))  # more than a day late: it restates


def get(address: str, path: str, **parameters: Any) -> Any:
    answer = httpx.get(f"{address}/api/{path}", params=parameters, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()
