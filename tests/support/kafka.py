"""Real brokers for tests: topics and messages, and a second broker that may be killed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tapeline.broker import Broker
from tapeline.java import OLDEST_JAVA, jars_folder, java_version

PATIENCE_SECONDS = 60.0


def refuse_without_kafka() -> None:
    """Skip where a broker cannot be started; fail where that must not be."""
    folder = jars_folder()
    missing = None
    if (java_version() or 0) < OLDEST_JAVA:
        missing = "there is no Java 17: run 'make setup'"
    elif folder is None or not (folder / "broker").is_dir():
        missing = "there are no jars of a broker: run 'make setup'"
    elif shutil.which("openssl") is None:
        missing = "there is no openssl, which makes the cluster's certificates: install it"
    if missing and os.environ.get("REQUIRE_KAFKA"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def second_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    refuse_without_kafka()
    found = Broker(tmp_path_factory.mktemp("second") / "a broker's folder")
    (found.folder / "data.part").mkdir(parents=True)  # an earlier first start was interrupted
    (found.folder / "data.part" / "meta.properties").write_text("half a fi")
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def own(second_broker: Broker) -> Broker:
    """A second cluster, for tests that stop and kill it: it runs when a test begins."""
    second_broker.start()
    return second_broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Callable[[int], str]:
    """Make a topic of the test's own, with so many partitions."""
    made: list[str] = []

    def make(partitions: int = 1) -> str:
        name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)
        made.append(f"{name[:200]}.{len(made) + 1}")
        assert broker.make_topic(made[-1], partitions)
        return made[-1]

    return make


def produced(
    broker: Broker, topic: str, values: Iterable[str | bytes], key: Callable[[Any], str] = str
) -> None:
    """Send values, and wait until the broker has them all."""
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(
            topic, value, key(value), on_delivery=lambda error, _: error and refused.append(error)
        )
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert refused == []


def consumed(broker: Broker, topic: str, isolation: str = "read_committed") -> list[list[str]]:
    """Everything in a topic, partition by partition, up to its end."""
    found = consumed_bytes(broker, topic, isolation)
    return [[value.decode() for value in part] for part in found]


def consumed_bytes(
    broker: Broker, topic: str, isolation: str = "read_committed"
) -> list[list[bytes]]:
    """The same, as the bytes they are."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    known = consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in known])
    values: dict[int, list[bytes]] = {part: [] for part in known}
    ended: set[int] = set()
    while ended != values.keys():
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None, f"nothing more came: {values}"
        if message.error() is None:
            values[message.partition()].append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return [values[part] for part in sorted(values)]


def remove(broker: Broker, name: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([name])[name].result(30)
    deadline = time.monotonic() + 30
    while name in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def make_anew(broker: Broker, name: str) -> None:
    """Delete a topic and make another of its name."""
    remove(broker, name)
    assert broker.make_topic(name, 1)


def remove_before(broker: Broker, topic: str, offset: int) -> None:
    """As retention does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    deleted = admin.delete_records([TopicPartition(topic, 0, offset)])
    next(iter(deleted.values())).result(30)


def pid_of(broker: Broker) -> int:
    pid = broker.status().pid
    assert pid is not None
    return pid
