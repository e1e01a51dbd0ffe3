"""Fault 57, lost packets: the kernel drops 5 of 100 between the broker and everybody else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tapeline.broker import Broker
from tests.support import lossy_network
from tests.support.kafka import refuse_without_kafka
from tests.support.orders import expected, found, orders_plan, refuse_other_changes, stand


@pytest.mark.slow
def test_lost_packets_neither_lose_nor_double_a_message_or_a_change(tmp_path: Path) -> None:
    refuse_without_kafka()
    enter = lossy_network.refuse_without_loss()
    repository = Path(__file__).parents[2]
    words = [*enter, sys.executable, "-m", "tests.support.lossy_network", str(tmp_path)]
    child = subprocess.Popen(
        words, cwd=repository, env=lossy_network.environment(), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        said, _ = child.communicate(timeout=2 * lossy_network.PATIENCE_SECONDS)
        assert child.returncode == 0, said[-4000:]
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        Broker(tmp_path / "broker").stop()
    sums = expected(range(lossy_network.MESSAGES))
    books = stand(orders_plan("orders", tmp_path), tmp_path, Broker(tmp_path / "broker")).books
    delivered = json.loads((tmp_path / "delivered.json").read_text())
    assert delivered["lost_packets"] > 0
    assert found(books) == sums
    assert books.totals()["orders"].verdicts == {"kept": lossy_network.MESSAGES}
    refuse_other_changes(delivered["messages"], sums)
