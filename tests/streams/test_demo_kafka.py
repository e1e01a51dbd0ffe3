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

from tapeline.broker import Broker
from tapeline.connect.kafka import client_options
from tapeline.operate.demo import demo_broker, latest_day, play_day
from tapeline.settings import load_settings
from tapeline.terminal import Terminal
from tapeline.testing import Deployment, plan_of
from tapeline.trades.topic_delivery import Topic
from tests.support.kafka import refuse_without_kafka
from tests.support.trades_oracle import equals_the_oracle

TRADES, SEED = 900, 5
QUIET = Terminal(quiet=True)


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
        plan = plan_of("tapeline.trades", settings)
        Deployment(plan, settings).run_once()
    equals_the_oracle(Deployment(plan, settings).books, folder / "reference")


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
