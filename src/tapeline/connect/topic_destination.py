"""Delivery into a topic: exactly once for readers of committed messages.

The messages of some batches and the place they reach are one Kafka transaction. The place is a
message in a compacted topic of the pipeline's own, so it does not expire as a group's offsets do.
Whoever opens a destination fences the process that had it before, and then reads the place.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tapeline.connect.kafka import Kafka, client_options, quiet
from tapeline.connect.kafka_cluster import find_partitions
from tapeline.declare.destination import (
    FencedError,
    SinkBatch,
    SinkContext,
    SinkPosition,
    value_of,
)
from tapeline.errors import OperationError
from tapeline.failpoints import hit
from tapeline.settings import Settings
from tapeline.words import counted

if TYPE_CHECKING:
    from confluent_kafka import Producer

# Of the places, the newest are looked at first.
NEWEST_PLACES = 1_000
# So long a process that was killed in a transaction holds up readers, unless it starts before.
TRANSACTION_MILLISECONDS = 60_000
QUEUE_MESSAGES, QUEUE_KILOBYTES = 100_000, 64 * 1024
QUEUE_WAIT_SECONDS = 0.1
NEW_TOPIC_SECONDS = 0.1


class TopicDestination:
    """One sink's topic, in transactions under the name of pipeline and sink."""

    def __init__(self, kafka: Kafka) -> None:
        self.goes_to = kafka.goes_to
        self._kafka = kafka
        self._topic = kafka.names[0]
        self._owner = f"{socket.gethostname()}, process {os.getpid()}, {uuid4().hex[:8]}"
        self._producer: Producer | None = None
        self._reached = SinkPosition()

    def open(self, sink: SinkContext) -> None:
        self._take(sink)
        self._reached = self._fence()

    def position(self) -> SinkPosition:
        return self._reached

    def check(self, settings: Settings) -> str:
        found = find_partitions(self._kafka, settings.kafka)
        return f"{self.goes_to}: {counted(len(found), 'partition')}"

    def _take(self, sink: SinkContext) -> None:
        """What the pipeline says of this sink."""
        self._sink = sink.sink
        self._places = f"tapeline.{sink.pipeline}.delivered"
        self._name = f"tapeline.{sink.pipeline}.{sink.sink}"
        self._format = self._kafka.records.written.for_sink(
            sink.settings.within(Path()), self._kafka.schemas
        )
        self._patience = sink.settings.sinks.answer_seconds
        self._go_on = sink.settings.sinks.on_other_books == "go_on"
        self._noted = sink.noted  # the same position in the books' folder, a moment later
        self._refuse_other_books = sink.refuse_other_books
        self._common = client_options(sink.settings.kafka)

    def _fence(self) -> SinkPosition:
        """Read the position, and stop whoever delivered this sink before."""
        from confluent_kafka import KafkaException, Producer

        self.close()
        try:
            self._find_topics()
            self._refuse_other_books(self._place())  # before anybody is fenced
            options = {
                **self._common,
                "transactional.id": self._name,
                "linger.ms": 5,
                "compression.type": "lz4",
                "transaction.timeout.ms": TRANSACTION_MILLISECONDS,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_KILOBYTES,
            }
            producer = Producer(options, logger=quiet)
            producer.init_transactions(self._patience)
            place = self._place()
            self._refuse_other_books(place)  # somebody else may have delivered since
            self._producer = producer
            producer.begin_transaction()
            self._record(place)
            producer.commit_transaction(self._patience)
        except KafkaException as error:
            raise self._said(error) from None
        return place

    def send(self, batches: Sequence[SinkBatch]) -> None:
        from confluent_kafka import KafkaException

        assert self._producer is not None
        # All of it before the transaction begins: readers would wait for one that stays open.
        encode = self._format.encode
        values = [(encode(value_of(row)), row) for batch in batches for row in batch.rows]
        try:
            self._producer.begin_transaction()
            for value, row in values:
                self._produce(self._topic, value, row)
            self._record(batches[-1].position)
            self._producer.flush(self._patience)
            hit("sink_sent")
            self._producer.commit_transaction(self._patience)
            hit("sink_committed")
            self._noted.write(batches[-1].position)
        except KafkaException as error:
            raise self._said(error) from None

    def close(self) -> None:
        """What was not committed is aborted by whoever opens it next."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()  # without it, whoever was fenced would go on trying to send

    def _produce(self, topic: str, value: bytes, row: Mapping[str, Any]) -> None:
        assert self._producer is not None
        key, headers = row.get("_key"), row.get("_headers")
        said: list[tuple[str, str | bytes | None]] | None = None
        if headers is not None:
            said = [(name, str(text)) for name, text in headers.items()]
        while True:
            try:
                self._producer.produce(
                    topic, value, None if key is None else str(key), headers=said
                )
                break
            except BufferError:
                self._producer.poll(QUEUE_WAIT_SECONDS)

    def _record(self, place: SinkPosition) -> None:
        """The place becomes part of the transaction that is open."""
        said = json.dumps({**vars(place), "by": self._owner})
        self._produce(self._places, said.encode(), {"_key": self._sink})

    def _place(self) -> SinkPosition:
        """The place that the cluster keeps. One that it has lost would send everything again."""
        place, _ = self._recorded()
        noted = self._noted.read()
        if place.batch >= noted.batch:
            return place
        if self._go_on:
            return noted
        raise OperationError(
            f"PLACE_LOST: sink {self._sink} was delivered up to batch {noted.batch}, but topic "
            f"{self._places} only has batch {place.batch}: this is another cluster, or the topic "
            "was removed. Give the sink another name to send everything, or set "
            "sinks.on_other_books = 'go_on' to send what came after that batch."
        )

    def _recorded(self) -> tuple[SinkPosition, str | None]:
        """The place of the last transaction that was committed, and whose that was."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                **self._common,
                "group.id": self._name,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,  # how long the end of the topic is not said
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            },
            logger=quiet,
        )
        try:
            low, end = self._bounds(consumer)
            for start in dict.fromkeys((max(low, end - NEWEST_PLACES), low)):
                consumer.assign([TopicPartition(self._places, 0, start)])
                found = self._last_of(consumer)
                if found is not None:
                    return SinkPosition(found["batch"], found["hash"]), str(found["by"])
        finally:
            consumer.close()
        return SinkPosition(), None

    def _bounds(self, consumer: Any) -> tuple[int, int]:
        """How far the places go; a topic that was made a moment ago is not known everywhere."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        new = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC,
               KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)  # fmt: skip
        deadline = time.monotonic() + self._patience
        while True:
            try:
                low, end = consumer.get_watermark_offsets(
                    TopicPartition(self._places, 0), self._patience
                )
                return int(low), int(end)
            except KafkaException as error:
                if error.args[0].code() not in new or time.monotonic() > deadline:
                    raise
            time.sleep(NEW_TOPIC_SECONDS)

    def _last_of(self, consumer: Any) -> dict[str, Any] | None:
        """The sink's last place between where the consumer stands and the end."""
        from confluent_kafka import KafkaError, KafkaException

        found: dict[str, Any] | None = None
        while True:
            message = consumer.poll(self._patience)
            if message is None:
                raise OperationError(
                    f"KAFKA: topic {self._places} did not answer in time. The sink is retried."
                )
            error = message.error()
            if error is None:
                if message.key() == self._sink.encode():
                    found = json.loads(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)

    def _find_topics(self) -> None:
        """The sink's topic must be there; the one for places is made."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(dict(self._common), logger=quiet)
        known = admin.list_topics(timeout=self._patience).topics
        if self._topic not in known:
            raise OperationError(
                f"TOPIC_MISSING: the cluster has no topic {self._topic}. Create it, or correct the "
                "name. The sink waits for it."
            )
        if self._places not in known:
            config = {"cleanup.policy": "compact"}
            made = admin.create_topics([NewTopic(self._places, 1, config=config)])
            made[self._places].result(self._patience)

    def _said(self, error: Exception) -> OperationError:
        """The error in words. One who was fenced looks who did it: a transaction that took too
        long is ended by the broker in the same way."""
        from confluent_kafka import KafkaError, KafkaException

        fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        if error.args and error.args[0].code() in fenced:
            try:
                _, owner = self._recorded()
            except (KafkaException, OperationError):
                owner = self._owner
            if owner not in (None, self._owner):
                return FencedError(
                    f"FENCED: another process ({owner}) delivers sink {self._sink} of these books, "
                    "so this one has stopped. Stop one of the two, then start again."
                )
        words = error.args[0].str() if error.args else str(error)
        if error.args and error.args[0].name().endswith("AUTHORIZATION_FAILED"):
            return OperationError(
                f"ACL: {words.rstrip('.')}. Allow this user to WRITE to the topics {self._topic} "
                f"and {self._places}, to READ the latter, to READ the group {self._name}, and to "
                "WRITE under the transactional id of the same name. The sink is retried."
            )
        return OperationError(
            f"KAFKA: {words}. The sink is retried. Check that the brokers of kafka.brokers are "
            f"running, and that this user may write to the topics {self._topic} and {self._places}."
        )
