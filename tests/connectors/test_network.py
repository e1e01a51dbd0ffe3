"""A cluster behind a bad line, and one that asks who is there: faults 57 and 58 of the list."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from tapeline import OperationError
from tapeline.books.operator import OperatorTape
from tapeline.broker import Broker
from tapeline.connect import Kafka
from tapeline.errors import RefusedError
from tapeline.intake.files import IntakeLimits
from tapeline.intake.kafka import TopicIntake, TopicOwner
from tapeline.settings import KafkaSettings
from tapeline.trades.records import Day
from tapeline.trades.topic_delivery import Topic, play_to_topic
from tests.support.kafka import produced
from tests.support.kafka_cluster import (
    PASSWORD,
    USER,
    VARIABLE,
    Cluster,
)
from tests.support.topic_intake import now, tape_at, values

GROUP = "tapeline.test.raw"


@contextmanager
def reading(settings: KafkaSettings, topic: str, home: Path) -> Iterator[TopicIntake]:
    kafka, limits = Kafka(topic, format="text"), IntakeLimits(records_per_piece=500)
    owner = TopicOwner("test", "raw", OperatorTape(home / "operator"), "tests")
    intake = TopicIntake(kafka, tape_at(home), settings, limits, now, owner)
    intake.recover()
    try:
        yield intake
    finally:
        intake.close()


def take_until(intake: TopicIntake, done: Callable[[], bool], seconds: float = 180.0) -> None:
    """As a run does: what fails is tried again."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        with suppress(OperationError):
            intake.take()


def take_some(intake: TopicIntake) -> None:
    """Until it fails: a read access is missed only by the first fetch."""
    for _ in range(100):
        intake.take()


@pytest.mark.parametrize(
    "fault",
    ["cut", *(pytest.param(name, marks=pytest.mark.slow) for name in ("slow", "half-open"))],
)
def test_a_bad_line_neither_loses_nor_doubles_a_message(
    cluster: Cluster, tmp_path: Path, fault: str
) -> None:
    """Fault 57, each on 3,000 messages of 2 partitions: ten cuts in the middle of fetches; two
    seconds of delay in each direction; connections that stay open and carry nothing more, which
    the next questions to the cluster find out within a minute."""
    broker, proxy = cluster.broker, cluster.line
    broker.make_topic(fault, 2)
    sent = [f"{fault} {number}" for number in range(3_000)]
    produced(broker, fault, sent[:2_000])
    settings = KafkaSettings(brokers=f"127.0.0.1:{proxy.port}")
    with reading(settings, fault, tmp_path) as intake:
        take_until(intake, lambda: len(values(tmp_path)) >= 500)
        before = proxy.accepted
        if fault == "cut":
            for _ in range(10):
                proxy.cut()
                with suppress(OperationError):
                    intake.take()
                proxy.mend()
                with suppress(OperationError):
                    intake.take()
        elif fault == "slow":
            proxy.delay_seconds = 2.0
        else:
            proxy.freeze()
        produced(broker, fault, sent[2_000:])
        try:
            take_until(intake, lambda: len(values(tmp_path)) >= len(sent))
        finally:
            proxy.delay_seconds = 0.0
        assert fault == "slow" or proxy.accepted > before
    assert sorted(values(tmp_path)) == sorted(sent)


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Cluster:
    """With a topic to read, one that may only be seen, and one that this user knows nothing of."""
    for name in ("readable", "visible", "hidden"):
        cluster.broker.make_topic(name, 1)
        produced(cluster.broker, name, ["a", "b"])
    cluster.allow("readable", AclOperation.READ, AclOperation.DESCRIBE)
    cluster.allow("visible", AclOperation.DESCRIBE)
    cluster.allow_group(GROUP)
    return cluster


def test_messages_come_over_sasl_and_tls(
    guarded: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    with reading(guarded.settings(), "readable", tmp_path) as intake:
        take_until(intake, lambda: values(tmp_path) == ["a", "b"])
        assert PASSWORD not in repr(guarded.settings())


@pytest.mark.parametrize(
    ("fault", "topic", "words"),
    [
        ("password", "readable", rf"AUTH: .*'{USER}'.*password in {VARIABLE}"),
        ("certificate", "readable", r"TLS: .*certificate has expired"),
        ("authority", "readable", r"TLS: .*unable to get local issuer"),
        ("read access", "visible", r"ACL: this user may not read"),
        ("right to see", "hidden", r"ACL: this user may not read topic hidden"),
    ],
)
def test_who_is_refused_is_told_why(
    guarded: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    fault: str, topic: str, words: str,
) -> None:  # fmt: skip
    """Fault 58: each within half a minute, without an address and without a secret."""
    monkeypatch.setenv(VARIABLE, "wrong-Secret-5" if fault == "password" else PASSWORD)
    settings = {
        "certificate": guarded.settings(brokers=f"127.0.0.1:{guarded.expired_port}"),
        "authority": guarded.settings(ca_file=""),
    }.get(fault, guarded.settings())
    with reading(settings, topic, tmp_path) as intake:
        with pytest.raises(RefusedError, match=words) as refusal:
            take_some(intake)
        told = str(refusal.value)
        assert not any(secret in told for secret in ("wrong-Secret-5", PASSWORD, "127.0.0.1"))
    assert values(tmp_path) == []


def test_a_simulator_names_the_topic_that_it_cannot_write_to(broker: Broker) -> None:
    day = Day(seed=1, date=date(2026, 11, 13), trades=10)
    topic = Topic("no-such-topic", {"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(OperationError, match=r"cannot write to topic no-such-topic: .*nknown"):
        play_to_topic(day, topic, 0, time.sleep, time.monotonic)


def test_a_topic_that_is_not_there_is_named(broker: Broker, tmp_path: Path) -> None:
    settings = KafkaSettings(brokers=broker.bootstrap_servers)
    with (
        reading(settings, "no-such-topic", tmp_path) as intake,
        pytest.raises(RefusedError, match=r"TOPIC_MISSING: .*no-such-topic"),
    ):
        intake.take()
