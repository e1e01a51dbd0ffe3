"""From a topic to the books: a real broker, real Spark, killed and started again."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from tapeline.broker import Broker
from tapeline.testing import Books, unbalanced
from tests.support.kafka import produced
from tests.support.orders import (
    Make,
    expected,
    found,
    killed_at_the_end,
    order,
    orders,
    orders_plan,
    run_to_the_end,
)
from tests.support.waiting import wait_for


def test_once_takes_what_the_topics_hold_and_the_next_goes_on(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    name = topic(3)
    here = orders(name, tmp_path, broker)
    produced(broker, name, [*map(order, range(100)), order(7), "not JSON"])
    here.run_once()
    assert found(here.books) == expected(range(100))
    assert here.books.totals()["orders"].verdicts == {
        "kept": 100,
        "duplicate": 1,
        "quarantined": 1,
    }
    produced(broker, name, map(order, range(100, 150)))
    with here.runner() as runner:
        runner.run_once()
        assert runner.run_once() == []
        # A transaction that is open when it looks: its end is on the way.
        produced(broker, name, map(order, range(150, 160)))
        options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}
        producer = Producer(options)
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(160, 170):
            producer.produce(name, order(number))
        producer.flush(60)
        threading.Timer(1.0, producer.commit_transaction, (60,)).start()
        runner.run_once()
    assert found(here.books) == expected(range(170))
    assert here.unbalanced() == []


def test_a_live_run_goes_on_when_the_broker_comes_back(
    own: Broker, tmp_path: Path, spark: Any
) -> None:
    own.make_topic("comes-back", 2)
    here = orders("comes-back", tmp_path, own)
    with here.running():
        produced(own, "comes-back", map(order, range(50)))
        wait_for(lambda: found(here.books) == expected(range(50)))
        own.stop()
        wait_for(lambda: "SOURCE_DOWN" in str(here.status().problems))
        own.start()
        produced(own, "comes-back", map(order, range(50, 90)))
        wait_for(lambda: found(here.books) == expected(range(90)))


@pytest.mark.slow
def test_killed_again_and_again_every_message_counts_once(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name, chance = topic(3), Random(4)
    plan = orders_plan(name, tmp_path)
    sent = 0
    for _ in range(3):
        with killed_at_the_end(tmp_path, broker):
            deadline = time.monotonic() + 16 + 8 * chance.random()
            while time.monotonic() < deadline:
                produced(broker, name, map(order, range(sent, sent + 50)))
                sent += 50
                time.sleep(0.2)
    run_to_the_end(tmp_path, broker)
    books = Books(plan, tmp_path / "tapeline-data" / "orders")
    assert found(books) == expected(range(sent))
    assert books.totals()["orders"].verdicts == {"kept": sent}
    assert unbalanced(books, full=True) == []
