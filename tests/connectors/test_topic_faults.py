"""Section D of the faults, at the intake of topics: what must stop stops, what goes on is noted."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from tapeline import DeclarationError, OperationError
from tapeline.books.gaps import gaps_of
from tapeline.broker import Broker
from tapeline.connect import Kafka
from tests.support.kafka import make_anew, pid_of, produced, remove, remove_before
from tests.support.topic_intake import opened, rows, take_all, values

Make = Callable[..., str]


def taken(broker: Broker, home: Path, kafka: Kafka, on_loss: str = "stop") -> list[str]:
    """Everything that there is by now, by an intake that starts anew."""
    intake = opened(broker, home, kafka, on_loss)
    try:
        take_all(intake)
    finally:
        intake.close()
    return values(home)


def test_51_a_gap_is_recorded_once_even_if_nothing_follows_it(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    kafka = Kafka(name, format="text")
    produced(broker, name, ["a", "b"])
    taken(broker, tmp_path, kafka)
    produced(broker, name, ["c", "d", "e"])
    remove_before(broker, name, 5)
    with pytest.raises(OperationError, match=r"KAFKA_DATA_LOSS: .*/0: offsets 2 to 4 are gone"):
        taken(broker, tmp_path, kafka)
    assert taken(broker, tmp_path, kafka, on_loss="go_on") == ["a", "b"]
    assert taken(broker, tmp_path, kafka) == ["a", "b"]  # the gap is part of the position
    produced(broker, name, ["f", "g"])
    remove_before(broker, name, 6)
    assert taken(broker, tmp_path, kafka, on_loss="go_on") == ["a", "b", "g"]
    found = [(gap.first, gap.last, gap.goes_on) for gap in gaps_of(tmp_path / "operator")]
    assert found == [(2, 4, 5), (5, 5, 6)]


def test_49_an_intake_ends_while_its_cluster_is_away_and_owes_it_an_answer(
    own: Broker, tmp_path: Path
) -> None:
    own.make_topic("away", 1)
    produced(own, "away", ["a"])
    intake = opened(own, tmp_path, Kafka("away", format="text"))
    take_all(intake)
    os.kill(pid_of(own), signal.SIGKILL)
    intake._group.tell(intake._reading, {"away/0": 0})
    ending = threading.Thread(target=intake.close, daemon=True)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()


def test_52_a_shorter_topic_of_the_same_name_is_refused_too(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    kafka = Kafka(name, format="text", starting="latest")
    taken(broker, tmp_path, Kafka(name, format="text"))
    produced(broker, name, ["a", "b", "c"])
    taken(broker, tmp_path, Kafka(name, format="text"))
    make_anew(broker, name)
    produced(broker, name, ["new"])
    with pytest.raises(OperationError, match=r"TOPIC_REPLACED: .*offset is 3"):
        taken(broker, tmp_path, kafka)
    # from its beginning, wherever unknown partitions start
    assert taken(broker, tmp_path, kafka, on_loss="go_on") == ["a", "b", "c", "new"]


def test_53_another_cluster_is_named_as_such(
    broker: Broker, own: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    kafka = Kafka(name, format="text")
    produced(broker, name, ["a", "b"])
    taken(broker, tmp_path, kafka)
    assert own.make_topic(name, 1)
    produced(own, name, ["x", "y", "z"])
    with pytest.raises(OperationError, match=r"CLUSTER_REPLACED: .*/0: .*offset is 2"):
        taken(own, tmp_path, kafka)
    assert taken(own, tmp_path, kafka, on_loss="go_on") == ["a", "b", "x", "y", "z"]
    (gap,) = gaps_of(tmp_path / "operator")
    assert (gap.kind, gap.first, gap.last) == ("CLUSTER_REPLACED", 2, None)


def test_54_partitions_that_are_added_are_taken_from_their_beginning(
    broker: Broker, topic: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.intake.kafka.intake.LOOK_SECONDS", 0.1)
    name = topic(1)
    produced(broker, name, ["a"])
    intake = opened(broker, tmp_path, Kafka(name, format="text"))
    take_all(intake)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    deadline = time.monotonic() + 60
    while len(producer.list_topics(name, timeout=30).topics[name].partitions) < 3:
        assert time.monotonic() < deadline
    for number in range(9):
        producer.produce(name, f"b{number}", partition=number % 3)
    assert producer.flush(60) == 0
    while len(values(tmp_path)) < 10:
        assert time.monotonic() < deadline
        intake.take()
    intake.close()
    assert sorted(values(tmp_path)) == ["a", *(f"b{number}" for number in range(9))]


def test_55_an_open_transaction_is_waited_for_and_counts_as_lag(
    broker: Broker, topic: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.intake.kafka.intake.LOOK_SECONDS", 0.1)
    name = topic(1)
    where = f"{name}/0"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    produced(broker, name, ["before"])
    producer.begin_transaction()
    producer.produce(name, "open 1")
    producer.produce(name, "open 2")
    assert producer.flush(60) == 0
    produced(broker, name, ["behind"])
    intake = opened(broker, tmp_path, Kafka(name, format="text"))
    take_all(intake)  # it comes to an end: what cannot be taken is not waited for
    assert values(tmp_path) == ["before"]
    later = datetime(2100, 1, 1, tzinfo=UTC)
    lag = intake.lag.partitions(booked=1, now=later)[where]
    assert lag.records == 3
    assert lag.seconds > 0
    producer.commit_transaction(60)
    deadline = time.monotonic() + 60
    while len(values(tmp_path)) < 4:
        assert time.monotonic() < deadline
        intake.take()
    take_all(intake)
    assert values(tmp_path) == ["before", "open 1", "open 2", "behind"]
    intake.take()
    booked = max(int(str(row["delivery"])) for row in rows(tmp_path))
    assert intake.lag.partitions(booked, later)[where].records == 0
    intake.close()


def test_a_lag_is_as_old_as_the_oldest_message_that_is_not_in_the_books(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for second in (100, 50, 70):
        producer.produce(name, str(second), timestamp=second * 1000)
    assert producer.flush(60) == 0
    intake = opened(broker, tmp_path, Kafka(name, format="text"), records_per_piece=2)
    take_all(intake)
    intake.close()
    now = datetime.fromtimestamp(200, UTC)
    waiting = intake.lag.partitions(booked=0, now=now)[f"{name}/0"]
    assert (waiting.records, waiting.seconds) == (3, 150.0)
    deliveries = {int(str(row["delivery"])) for row in rows(tmp_path)}
    assert intake.lag.partitions(max(deliveries), now)[f"{name}/0"].records == 0


@pytest.mark.parametrize("ending", ["latest", "offsets", "moment"])
def test_nothing_is_taken_at_the_ending_or_behind_it(
    broker: Broker, topic: Make, tmp_path: Path, ending: str
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def send(*minutes: int) -> None:
        for minute in minutes:
            moment = datetime(2026, 11, 13, 10, minute, tzinfo=UTC)
            producer.produce(name, f"m{minute}", timestamp=int(moment.timestamp() * 1000))
        assert producer.flush(60) == 0

    said: dict[str, str | dict[str, int]] = {
        "latest": "latest",
        "offsets": {f"{name}/0": 3},
        "moment": "2026-11-13 10:04",
    }
    send(1, 2, 3)
    kafka = Kafka(name, format="text", ending=said[ending])
    intake = opened(broker, tmp_path, kafka, records_per_piece=2)
    take_all(intake)
    send(4, 5)  # known to be behind the end before any look finds the moment
    take_all(intake)
    assert intake.waiting() == (0, 0)
    intake.close()
    assert values(tmp_path) == ["m1", "m2", "m3"]
    going_on = Kafka(name, format="text")
    assert taken(broker, tmp_path, going_on) == ["m1", "m2", "m3", "m4", "m5"]


def test_an_ending_at_the_beginning_is_refused() -> None:
    with pytest.raises(DeclarationError, match="would read nothing"):
        Kafka("trades", format="text", ending="earliest")


def test_a_schema_with_a_message_of_its_own_is_refused_beside_meta() -> None:
    with pytest.raises(DeclarationError, match="meta=True adds the column 'message'"):
        Kafka("trades", schema="id string, message string", meta=True)


@pytest.mark.parametrize("on_loss", ["stop", "go_on"])
def test_what_was_seen_in_a_topic_of_a_pattern_that_vanished_is_a_gap(
    broker: Broker, topic: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_loss: str
) -> None:
    name = topic(1)
    kafka = Kafka(re.compile(re.escape(name)), format="text")
    produced(broker, name, ["a", "b", "c"])
    intake = opened(broker, tmp_path, kafka, on_loss, records_per_piece=1)
    deadline = time.monotonic() + 60
    while not intake.take():
        assert time.monotonic() < deadline
    remove(broker, name)
    monkeypatch.setattr("tapeline.intake.kafka.intake.LOOK_SECONDS", 0.0)
    if on_loss == "go_on":
        intake.take()
        (gap,) = gaps_of(tmp_path / "operator")
        assert (gap.kind, gap.first, gap.last) == ("KAFKA_DATA_LOSS", 1, 2)
    else:
        for _ in range(2):  # as long as nobody decides
            with pytest.raises(OperationError, match="the topic is gone, with offsets 1 to"):
                intake.take()
    intake.close()
    assert values(tmp_path) == ["a"]
