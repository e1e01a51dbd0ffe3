"""A small pipeline from a topic to its books, its oracle in plain Python, and how tests run one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tapeline import Pipeline
from tapeline.broker import Broker
from tapeline.settings import KafkaSettings, Settings
from tapeline.testing import Books, Deployment, Plan, plan_of

Make = Callable[..., str]
Sums = dict[str, tuple[int, int]]
RUN = [sys.executable, "-m", "tapeline", "run", "pipeline.py"]
FILE = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Changes, Kafka, Pipeline, Stream

pipeline = Pipeline("{name}")
pipeline.source("raw", Kafka("{topic}", schema="id string, item string, amount int"))


@pipeline.table(key="id")
def orders(raw: Stream) -> DataFrame:
    return raw


@pipeline.summary(key="item")
def totals(orders: Stream) -> DataFrame:
    return orders.groupBy("item").agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))
"""
SINK = """

@pipeline.sink(Kafka("{topic}"))
def changes(totals: Changes) -> Changes:
    return totals
"""


def stand(
    of: Pipeline | Plan, folder: Path, broker: Broker | KafkaSettings, **more: Any
) -> Deployment:
    """A deployment whose books are in a folder; `more` are further sections of its settings."""
    kafka = broker if isinstance(broker, KafkaSettings) else kafka_of(broker)
    settings = Settings(**{"project": folder, "root": folder / "books", "kafka": kafka} | more)
    return Deployment(of, settings)


def kafka_of(broker: Broker, **more: Any) -> KafkaSettings:
    return KafkaSettings(brokers=broker.bootstrap_servers, **more)


def orders_plan(topic: str, folder: Path, sink: str = "", name: str = "orders") -> Plan:
    """The plan of FILE, which is put into the folder for commands as well.

    A pipeline with a sink needs a name of its own: in a cluster that is who delivers.
    """
    text = FILE.format(name=name, topic=topic) + (SINK.format(topic=sink) if sink else "")
    (folder / "pipeline.py").write_text(text)
    return plan_of("pipeline.py", Settings(project=folder))


def orders(topic: str, folder: Path, broker: Broker | KafkaSettings, **more: Any) -> Deployment:
    """A deployment of this module's own pipeline."""
    return stand(orders_plan(topic, folder), folder, broker, **more)


@contextmanager
def live(runner: Any) -> Iterator[None]:
    """A runner that is open already, running on a thread."""
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield
    finally:
        runner.stop()
        thread.join()


@contextmanager
def killed_at_the_end(folder: Path, broker: Broker) -> Iterator[None]:
    """`tapeline run` in a process of its own, killed with all that it started."""
    child = subprocess.Popen(
        RUN, cwd=folder, env=environment(broker), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def run_to_the_end(folder: Path, broker: Broker) -> None:
    """`tapeline run --once` in a process of its own."""
    done = subprocess.run(
        [*RUN, "--once"], cwd=folder, env=environment(broker), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def environment(broker: Broker) -> dict[str, str]:
    return {
        **os.environ,
        "TAPELINE_KAFKA_BROKERS": broker.bootstrap_servers,
        "TAPELINE_JARS": str(Path(__file__).parents[2] / ".jars"),
    }


def order(number: int) -> str:
    item = ("tea", "mate", "coffee")[number % 3]
    return json.dumps({"id": f"o{number}", "item": item, "amount": number % 7})


def expected(numbers: range) -> Sums:
    """The oracle."""
    amounts: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for number in numbers:
        said = json.loads(order(number))
        amounts[said["item"]] += said["amount"]
        counts[said["item"]] += 1
    return {item: (amounts[item], counts[item]) for item in counts}


def found(books: Books) -> Sums:
    return {r["item"]: (r["amount"], r["n"]) for r in books.read("totals").to_pylist()}


def refuse_other_changes(messages: Iterable[str], sums: Sums) -> None:
    """Each change begins where the one before ended: none is missing, none came twice."""
    by_item: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for message in messages:
        one = json.loads(message)
        by_item[one["item"]].append(one)
    assert by_item.keys() == sums.keys()
    for item, (amount, count) in sums.items():
        steps = by_item[item]
        assert [one["_old"] for one in steps] == [None, *(one["_new"] for one in steps[:-1])]
        assert steps[-1]["_new"] == {"amount": amount, "n": count}
        assert len({one["_batch"] for one in steps}) == len(steps)
