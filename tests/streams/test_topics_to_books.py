"""From a topic to the books: a real broker, real Spark, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Kafka, Pipeline, Stream
from tapeline.books import Books
from tapeline.broker import Broker
from tapeline.plan import Plan, resolve
from tapeline.run.runner import Runner
from tapeline.settings import KafkaSettings, Settings
from tapeline.watch.audit import audit
from tests.kafka import produced

Make = Callable[..., str]
FILE = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Kafka, Pipeline, Stream

pipeline = Pipeline("orders")
pipeline.source("raw", Kafka("{topic}", schema="id string, item string, amount int"))


@pipeline.table(key="id")
def orders(raw: Stream) -> DataFrame:
    return raw


@pipeline.summary(key="item")
def totals(orders: Stream) -> DataFrame:
    return orders.groupBy("item").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))
"""


def plan_of(topic: str) -> Plan:
    pipeline = Pipeline("orders")
    pipeline.source("raw", Kafka(topic, schema="id string, item string, amount int"))

    @pipeline.table(key="id")
    def orders(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key="item")
    def totals(orders: Stream) -> DataFrame:
        sums = F.sum("amount").alias("amount"), F.count("*").alias("n")
        return orders.groupBy("item").agg(*sums)

    return resolve(pipeline)


def order(number: int) -> str:
    item = ("tea", "mate", "coffee")[number % 3]
    return json.dumps({"id": f"o{number}", "item": item, "amount": number % 7})


def expected(numbers: range) -> dict[str, tuple[int, int]]:
    amounts: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for number in numbers:
        said = json.loads(order(number))
        amounts[said["item"]] += said["amount"]
        counts[said["item"]] += 1
    return {item: (amounts[item], counts[item]) for item in counts}


def found(books: Books) -> dict[str, tuple[int, int]]:
    return {r["item"]: (r["amount"], r["n"]) for r in books.read("totals").to_pylist()}


def settings_for(folder: Path, broker: Broker) -> Settings:
    kafka = KafkaSettings(brokers=broker.bootstrap_servers)
    return Settings(project=folder, root=folder / "books", kafka=kafka)


def test_once_takes_what_the_topics_hold_and_the_next_goes_on(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    name = topic(3)
    plan, settings = plan_of(name), settings_for(tmp_path, broker)
    books = Books(plan, settings.home("orders"))
    produced(broker, name, [*map(order, range(100)), order(7), "not JSON"])
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
    assert found(books) == expected(range(100))
    assert books.totals()["orders"]["verdicts"] == {"kept": 100, "duplicate": 1, "quarantined": 1}
    produced(broker, name, map(order, range(100, 150)))
    with Runner(plan, settings, session=spark) as runner:
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
        threading.Timer(2.0, producer.commit_transaction, (60,)).start()
        runner.run_once()
    assert found(books) == expected(range(170))
    assert all(check.balances for check in audit(books, full=True))


def test_a_live_run_goes_on_when_the_broker_comes_back(tmp_path: Path, spark: Any) -> None:
    own = Broker(tmp_path / "broker")
    own.start()
    try:
        own.make_topic("orders", 2)
        plan, settings = plan_of("orders"), settings_for(tmp_path, own)
        books = Books(plan, settings.home("orders"))
        with Runner(plan, settings, session=spark) as runner:
            thread = threading.Thread(target=runner.run)
            thread.start()
            try:
                produced(own, "orders", map(order, range(50)))
                wait_for(lambda: found(books) == expected(range(50)))
                own.stop()
                time.sleep(3)
                own.start()
                produced(own, "orders", map(order, range(50, 90)))
                wait_for(lambda: found(books) == expected(range(90)))
            finally:
                runner.stop()
                thread.join()
    finally:
        own.stop()


@pytest.mark.slow
def test_killed_again_and_again_every_message_counts_once(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name, chance = topic(3), Random(4)
    (tmp_path / "pipeline.py").write_text(FILE.format(topic=name))
    jars = str(Path(__file__).parents[2] / ".jars")
    settings = {"TAPELINE_KAFKA_BROKERS": broker.bootstrap_servers, "TAPELINE_JARS": jars}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-m", "tapeline", "run", "pipeline.py"]
    sent = 0
    for _ in range(3):
        child = subprocess.Popen(
            command, cwd=tmp_path, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 16 + 8 * chance.random()
        while time.monotonic() < deadline:
            produced(broker, name, map(order, range(sent, sent + 50)))
            sent += 50
            time.sleep(0.2)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    done = subprocess.run(
        [*command, "--once"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    books = Books(plan_of(name), tmp_path / "tapeline-data" / "orders")
    assert found(books) == expected(range(sent))
    assert books.totals()["orders"]["verdicts"] == {"kept": sent}
    assert all(check.balances for check in audit(books, full=True))


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
