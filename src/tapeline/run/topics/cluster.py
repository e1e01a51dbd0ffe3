"""What a cluster says of its topics: which partitions there are, who they are, how far they go."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tapeline.connect.kafka import Kafka, client_options
from tapeline.errors import OperationError
from tapeline.settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import Consumer

ASK_SECONDS = 30.0
quiet = logging.getLogger("tapeline.kafka.client")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False

Partition = tuple[str, int]


def label(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


@dataclass(frozen=True)
class Bounds:
    """The first offset that a partition still holds, and the one behind its last message."""

    first: int
    end: int


class Cluster:
    """Answers of one cluster. Every question has a limit of time, and says who did not answer."""

    def __init__(self, options: dict[str, str | int | bool], kafka: Kafka) -> None:
        from confluent_kafka.admin import AdminClient

        self._kafka = kafka
        self._admin = AdminClient(dict(options), logger=quiet)

    def partitions(self, consumer: Consumer) -> dict[Partition, str]:
        """The partitions that the source chooses, each with the identity of its topic.

        A topic that is deleted and made anew has another identity: its offsets mean other records.
        """
        from confluent_kafka import KafkaException, TopicCollection

        try:
            seen = consumer.list_topics(timeout=ASK_SECONDS)
            chosen = sorted(
                (name, partition)
                for name, topic in seen.topics.items()
                for partition in topic.partitions
                if self._kafka.chooses(name, partition)
            )
            names = sorted({name for name, _ in chosen})
            asked = self._admin.describe_topics(TopicCollection(names)) if names else {}
            ids = {name: str(one.result(ASK_SECONDS).topic_id) for name, one in asked.items()}
        except KafkaException as error:
            raise unreachable(error) from None
        missing = {name.partition("/")[0] for name in self._kafka.names} - set(names)
        if missing:
            absent = ", ".join(sorted(missing))
            raise OperationError(
                f"TOPIC_MISSING: the cluster has no topic {absent}. Make it, or correct the name; "
                "the source waits for it."
            )
        return {one: f"{seen.cluster_id}/{ids[one[0]]}" for one in chosen}

    def bounds(self, consumer: Consumer, partition: Partition) -> Bounds:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            first, end = consumer.get_watermark_offsets(
                TopicPartition(*partition), timeout=ASK_SECONDS
            )
        except KafkaException as error:
            raise unreachable(error) from None
        return Bounds(first, end)

    def at(
        self, consumer: Consumer, partitions: list[Partition], moment: datetime
    ) -> dict[Partition, int | None]:
        """The first offset whose message is of a moment or later; None where none is yet."""
        from confluent_kafka import KafkaException, TopicPartition

        milliseconds = int(moment.timestamp() * 1000)
        asked = [TopicPartition(*one, milliseconds) for one in partitions]
        try:
            found = consumer.offsets_for_times(asked, timeout=ASK_SECONDS)
        except KafkaException as error:
            raise unreachable(error) from None
        return {
            (one.topic, one.partition): one.offset if one.offset >= 0 else None for one in found
        }

    def written(self, partitions: Iterable[Partition]) -> dict[str, int]:
        """Where partitions end, messages of open transactions included."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = dict.fromkeys((TopicPartition(*one) for one in partitions), latest)
        if not asked:
            return {}
        try:
            answers = self._admin.list_offsets(
                asked,
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=ASK_SECONDS,
            )
            return {
                label((one.topic, one.partition)): answer.result(ASK_SECONDS).offset
                for one, answer in answers.items()
            }
        except KafkaException as error:
            raise unreachable(error) from None


def find_partitions(kafka: Kafka, settings: KafkaSettings) -> dict[Partition, str]:
    """The partitions of a source, asked once."""
    from confluent_kafka import Consumer

    options = client_options(settings)
    consumer = Consumer({**options, "group.id": "tapeline.looks"}, logger=quiet)
    try:
        return Cluster(options, kafka).partitions(consumer)
    finally:
        consumer.close()


def unreachable(error: Exception) -> OperationError:
    """Why the cluster did not answer, in words, without addresses."""
    said = error.args[0] if error.args else error
    words = said.str() if hasattr(said, "str") else str(said)
    return OperationError(
        f"KAFKA: {words}. It is tried again; see that the brokers of kafka.brokers run, and that "
        "this user may read."
    )
