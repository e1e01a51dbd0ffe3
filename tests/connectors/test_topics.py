"""The intake of topics against a real broker: every message once, gaps named, never silent."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tapeline import OperationError
from tapeline.books.gaps import gaps_of
from tapeline.broker import Broker
from tapeline.connect import Kafka
from tests.support.kafka import make_anew, produced
from tests.support.topic_intake import opened, rows, take_all, values

GROUP = "tapeline.test.raw"
Make = Callable[..., str]


def test_every_message_comes_once_across_restarts(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(3)
    kafka = Kafka(name, format="text")
    sent = [f"m{number}" for number in range(300)]
    for some in (sent[:100], sent[100:250], sent[250:]):
        produced(broker, name, some)
        intake = opened(broker, tmp_path, kafka, records_per_piece=40)
        take_all(intake)
        intake.close()
    assert sorted(values(tmp_path)) == sorted(sent)
    offsets = [(row["delivery"], row["line"]) for row in rows(tmp_path)]
    assert len(set(offsets)) == 300


def test_messages_that_could_not_be_written_are_fetched_again(
    broker: Broker, topic: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(1)
    produced(broker, name, ["a", "b", "c"])
    intake = opened(broker, tmp_path, Kafka(name, format="text"))

    def full(*words: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tapeline.books.tape.write_piece", full)
        with pytest.raises(OSError, match="No space"):
            take_all(intake)
    take_all(intake)
    intake.close()
    assert values(tmp_path) == ["a", "b", "c"]


def test_a_topic_made_anew_while_it_is_read_goes_on_where_that_is_allowed(
    broker: Broker, topic: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.intake.kafka.intake.LOOK_SECONDS", 0.1)
    name = topic(1)
    produced(broker, name, ["old"])
    intake = opened(broker, tmp_path, Kafka(name, format="text"), on_loss="go_on")
    take_all(intake)
    make_anew(broker, name)
    produced(broker, name, ["new 1", "new 2"])
    deadline = time.monotonic() + 60
    while len(values(tmp_path)) < 3:
        assert time.monotonic() < deadline
        with suppress(OperationError):  # for a moment the topic is not there
            intake.take()
    intake.close()
    assert values(tmp_path) == ["old", "new 1", "new 2"]


def test_aborted_messages_never_come_and_a_message_without_a_value_is_named(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for word, end in (("lost", producer.abort_transaction), ("kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, word)
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce(name, None, key="tombstone")
    producer.commit_transaction(30)
    intake = opened(broker, tmp_path, Kafka(name, format="text"))
    take_all(intake)
    intake.close()
    found = [(bytes(row["raw"]), row["fault"]) for row in rows(tmp_path)]  # type: ignore[call-overload]
    assert found == [(b"kept", None), (b"", "the message has no value")]


def test_a_topic_that_was_made_anew_is_refused_and_named(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    kafka = Kafka(name, format="text")
    produced(broker, name, ["old"])
    intake = opened(broker, tmp_path, kafka)
    take_all(intake)
    intake.close()
    make_anew(broker, name)
    produced(broker, name, ["new 1", "new 2"])
    again = opened(broker, tmp_path, kafka)
    with pytest.raises(
        OperationError, match=rf"TOPIC_REPLACED: {re.escape(name)}/0: .*offset is 1"
    ):
        again.take()
    again.close()
    going_on = opened(broker, tmp_path, kafka, on_loss="go_on")
    take_all(going_on)
    going_on.close()
    assert values(tmp_path) == ["old", "new 1", "new 2"]
    (gap,) = gaps_of(tmp_path / "operator")
    assert (gap.kind, gap.name, gap.first, gap.last) == ("TOPIC_REPLACED", f"{name}/0", 1, None)
    assert gap.who == "tests"


def test_offsets_that_have_vanished_are_a_gap_with_its_name(
    broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    kafka = Kafka(name, format="text")
    produced(broker, name, [f"m{n}" for n in range(10)])
    intake = opened(broker, tmp_path, kafka)
    take_all(intake)
    intake.close()
    produced(broker, name, [f"n{n}" for n in range(10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    partition = TopicPartition(name, 0, 15)
    next(iter(admin.delete_records([partition]).values())).result(30)
    again = opened(broker, tmp_path, kafka)
    with pytest.raises(OperationError, match=r"KAFKA_DATA_LOSS: .*/0: offsets 10 to 14 are gone"):
        again.take()
    again.close()
    going_on = opened(broker, tmp_path, kafka, on_loss="go_on")
    take_all(going_on)
    going_on.close()
    assert values(tmp_path)[10:] == [f"n{n}" for n in range(5, 10)]
    for _ in range(2):  # once: where it stands behind the gap survives a start
        later = opened(broker, tmp_path, kafka)
        take_all(later)
        later.close()
    (gap,) = gaps_of(tmp_path / "operator")
    assert (gap.kind, gap.first, gap.last, gap.source) == ("KAFKA_DATA_LOSS", 10, 14, "raw")


def test_new_partitions_and_new_topics_of_a_pattern_are_taken_from_their_beginning(
    broker: Broker, topic: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.intake.kafka.intake.LOOK_SECONDS", 0.1)
    first = topic(1)
    stem = first.rpartition(".")[0]
    kafka = Kafka(re.compile(re.escape(stem) + r"\.\d"), format="text")
    produced(broker, first, ["a"])
    intake = opened(broker, tmp_path, kafka)
    take_all(intake)
    second = topic(2)
    produced(broker, second, ["b", "c", "d"])
    deadline = time.monotonic() + 30
    while len(values(tmp_path)) < 4:
        assert time.monotonic() < deadline
        intake.take()
    intake.close()
    assert sorted(values(tmp_path)) == ["a", "b", "c", "d"]


def test_ordinary_lag_tools_see_how_far_it_is(broker: Broker, topic: Make, tmp_path: Path) -> None:
    name = topic(1)
    produced(broker, name, ["a", "b", "c"])
    intake = opened(broker, tmp_path, Kafka(name, format="text"))
    take_all(intake)
    intake.close()
    tool = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP})
    (committed,) = tool.committed([TopicPartition(name, 0)], timeout=30)
    tool.close()
    assert committed.offset == 3


@pytest.mark.parametrize("starting", ["latest", {"x/0": 2}])
def test_a_partition_begins_where_it_is_told_to(
    broker: Broker, topic: Make, tmp_path: Path, starting: str | dict[str, int]
) -> None:
    name = topic(1)
    produced(broker, name, ["a", "b", "c"])
    said = starting if isinstance(starting, str) else {f"{name}/0": 2}
    intake = opened(broker, tmp_path, Kafka(name, format="text", starting=said))
    take_all(intake)
    produced(broker, name, ["d"])
    take_all(intake)
    intake.close()
    assert values(tmp_path) == (["d"] if starting == "latest" else ["c", "d"])
