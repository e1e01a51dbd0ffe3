"""Bringing simulated records to a topic, exactly once for readers of what is committed.

How far a day was played is stored in the cluster, as the offset of a group of the simulator's own,
in the same transaction as the records. So a simulator that was killed goes on where its last
transaction ended, and one that is started a second time shuts out the first.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from tapeline import OperationError
from tapeline.trades.delivery import as_json, paced
from tapeline.trades.lines import line
from tapeline.trades.records import Day, Sent
from tapeline.trades.reference import Instrument

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

# The client reports trouble through callbacks; what it would log on its own is left out.
_quiet = logging.getLogger("tapeline.trades.client")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False

ANSWER_SECONDS = 30.0
# A transaction that stays open longer than a minute is taken back by the cluster.
RECORDS_PER_TRANSACTION = 10_000


@dataclass(frozen=True)
class Topic:
    """A topic to write to, and how a client reaches its cluster."""

    name: str
    options: Mapping[str, str | int | bool]


def play_to_topic(
    day: Day,
    topic: Topic,
    seconds: float,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    instruments: Sequence[Instrument] | None = None,
) -> int:
    """Play a day into a topic within `seconds`, and return how many records it delivered.

    A trade's id is the key, so that its versions stay in order. A second call goes on where the
    first one was stopped, and a finished day delivers nothing.
    """
    from confluent_kafka import KafkaException

    try:
        player = _Player(day, topic)
        before = player.sent
        for group in paced(day, before, seconds, sleep, clock, instruments):
            for first in range(0, len(group), RECORDS_PER_TRANSACTION):
                player.deliver(group[first : first + RECORDS_PER_TRANSACTION])
    except KafkaException as error:
        raise OperationError(
            f"the simulator cannot write to topic {topic.name}: {error.args[0].str()}. Check that "
            "the cluster of kafka.brokers is running, has this topic and allows this user to write."
        ) from None
    return player.sent - before


class _Player:
    """A transactional producer of one day, and how far that day is."""

    def __init__(self, day: Day, topic: Topic) -> None:
        from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

        self._topic = topic.name
        print_of_day = crc32(json.dumps(as_json(day), sort_keys=True).encode())
        name = f"tapeline.simulator.{topic.name}.{day.date:%Y%m%d}.{day.seed}.{print_of_day:08x}"
        self._progress = TopicPartition(topic.name, 0)
        own = {"transactional.id": name, "linger.ms": 5, "acks": "all", "enable.idempotence": True}
        self._producer: Producer = Producer({**topic.options, **own}, logger=_quiet)
        # Before the progress is read: an open transaction of a killed simulator ends here.
        self._producer.init_transactions(ANSWER_SECONDS)
        group = {"group.id": name, "enable.auto.commit": False}
        self._group = Consumer({**topic.options, **group}, logger=_quiet)
        known = self._group.list_topics(topic.name, ANSWER_SECONDS).topics[topic.name]
        if known.error is not None:
            raise KafkaException(known.error)
        (stored,) = self._group.committed([self._progress], timeout=ANSWER_SECONDS)
        self.sent = max(0, stored.offset)

    def deliver(self, sents: Sequence[Sent]) -> None:
        """Records and the new progress, both or neither."""
        from confluent_kafka import KafkaException

        refused: list[KafkaError] = []

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                refused.append(error)

        self._producer.begin_transaction()
        for sent in sents:
            self._producer.produce(self._topic, line(sent), sent.trade_id, on_delivery=note)
        self._producer.flush(ANSWER_SECONDS)
        if refused:
            raise KafkaException(refused[0])
        self._progress.offset = self.sent + len(sents)
        self._producer.send_offsets_to_transaction(
            [self._progress], self._group.consumer_group_metadata(), ANSWER_SECONDS
        )
        self._producer.commit_transaction(ANSWER_SECONDS)
        self.sent += len(sents)
