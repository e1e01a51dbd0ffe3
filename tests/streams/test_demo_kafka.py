"""The demo through a real broker, as a person runs it: watched, interrupted, and gone on with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tapeline.books import Books
from tapeline.broker import Broker
from tapeline.connect.kafka import client_options
from tapeline.demo import demo_broker, latest_day, play_day
from tapeline.plan import load_pipeline, resolve
from tapeline.run.runner import Runner
from tapeline.settings import load_settings
from tapeline.trades import oracle
from tapeline.trades.topic_delivery import Topic
from tapeline.watch.audit import audit
from tests.kafka import refuse_without_kafka

TRADES, SEED = 900, 5
QUIET = Console(quiet=True)


@pytest.mark.slow
def test_a_demo_through_a_topic_is_interrupted_and_what_goes_on_equals_the_oracle(
    tmp_path: Path, spark: Any
) -> None:
    refuse_without_kafka()
    folder = tmp_path / "demo"
    words = ["demo", "--kafka", "--folder", str(folder), "--trades", str(TRADES)]
    told = interrupted([*words, "--seed", str(SEED)])
    assert "Trades go through topic trades" in told
    assert "The books balance." in told
    assert Broker(folder / "broker").status().running is False

    with demo_broker(folder, QUIET):
        settings = load_settings(folder)
        day = latest_day(datetime.now(UTC).date(), TRADES, SEED)
        topic = Topic("trades", client_options(settings.kafka))
        assert 0 < play_day(topic, folder / "reference", day, seconds=0) < TRADES
        assert play_day(topic, folder / "reference", day, seconds=0) == 0  # the day is over
        plan = resolve(load_pipeline("tapeline.trades", settings))
        with Runner(plan, settings, session=spark) as runner:
            runner.run_once()
    equals_the_oracle(Books(plan, settings.home("trades")), folder / "reference")


def interrupted(words: list[str]) -> str:
    """Run a command until it shows trades, press Ctrl-C, and return what it printed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tapeline", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
    )  # fmt: skip
    assert child.stdout is not None
    told = ""
    with child.stdout:
        for line in child.stdout:
            told += line
            if "arrived" in line and "arrived 0" not in line:
                child.send_signal(signal.SIGINT)
                break
        told += child.stdout.read()
    assert child.wait(120) == 0, told
    return told


def equals_the_oracle(books: Books, reference: Path) -> None:
    truth = next(reference.glob("truth-*.jsonl"))
    expected = oracle.expect(oracle.read_truth(truth), oracle.Reference.read(reference))
    totals = books.totals()
    assert totals["trades"]["verdicts"] == dict(expected.trades)
    assert totals["enriched_trades"]["verdicts"] == dict(expected.enriched_trades)
    windows = {
        (r["window_start"], r["terminal"], r["currency"]): (r["total_buy"], r["total_sell"])
        for r in books.read("trade_summary").to_pylist()
    }
    assert windows == {k: (w.total_buy, w.total_sell) for k, w in expected.windows.items()}
    due = books.read("due").to_pylist()
    assert {(r["settlement_id"], r["currency"]): r["due"] for r in due} == dict(expected.due)
    assert [check for check in audit(books) if not check.balances] == []
