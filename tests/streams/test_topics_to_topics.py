"""From topic to topic: everything killed at random, and every change sent once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tapeline.broker import Broker
from tests.support.kafka import consumed, produced
from tests.support.orders import (
    expected,
    killed_at_the_end,
    order,
    orders_plan,
    refuse_other_changes,
    run_to_the_end,
)


@pytest.mark.slow
def test_flow_and_deliverer_killed_at_random_every_change_is_sent_once(
    broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    incoming, outgoing, chance = topic(3), topic(1), Random(8)
    orders_plan(incoming, tmp_path, sink=outgoing, name="relay")
    sent = 0
    for _ in range(4):
        with killed_at_the_end(tmp_path, broker):
            before = len(consumed(broker, outgoing)[0])
            deadline = time.monotonic() + 120
            # Killed when it has delivered something, and a random while after.
            while len(consumed(broker, outgoing)[0]) == before:
                assert time.monotonic() < deadline, "nothing was delivered"
                produced(broker, incoming, map(order, range(sent, sent + 20)))
                sent += 20
                time.sleep(0.1)
            time.sleep(chance.random())
    run_to_the_end(tmp_path, broker)
    refuse_other_changes(consumed(broker, outgoing)[0], expected(range(sent)))
