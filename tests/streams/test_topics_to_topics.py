"""From topic to topic: everything killed at random, and every change sent once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tapeline.broker import Broker
from tests.kafka import consumed, produced
from tests.orders import expected, order, plan_of, refuse_other_changes


@pytest.mark.slow
def test_flow_and_deliverer_killed_at_random_every_change_is_sent_once(
    broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    incoming, outgoing, chance = topic(3), topic(1), Random(8)
    plan_of(incoming, tmp_path, sink=outgoing, name="relay")
    jars = str(Path(__file__).parents[2] / ".jars")
    settings = {"TAPELINE_KAFKA_BROKERS": broker.bootstrap_servers, "TAPELINE_JARS": jars}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-m", "tapeline", "run", "pipeline.py"]
    sent = 0
    for _ in range(4):
        child = subprocess.Popen(
            command, cwd=tmp_path, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        before = len(consumed(broker, outgoing)[0])
        deadline = time.monotonic() + 120
        # Killed when it has delivered something, and a random while after.
        while len(consumed(broker, outgoing)[0]) == before:
            assert time.monotonic() < deadline, "nothing was delivered"
            produced(broker, incoming, map(order, range(sent, sent + 20)))
            sent += 20
            time.sleep(0.1)
        time.sleep(chance.random())
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    done = subprocess.run(
        [*command, "--once"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refuse_other_changes(consumed(broker, outgoing)[0], expected(range(sent)))
