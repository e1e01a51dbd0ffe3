"""What a cluster says of its topics: which partitions there are, who they are, how far they go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tapeline.connect.kafka import Kafka, client_options, quiet
from tapeline.connect.kafka_errors import ClientErrors, forbidden, in_words
from tapeline.errors import RefusedError
from tapeline.settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka.admin._metadata import ClusterMetadata

ASK_SECONDS = 30.0
# A refusal of who we are is known after the first turn, that nobody is there after the second.
TURNS_SECONDS = (0.5, 2.5, ASK_SECONDS - 3.0)

Partition = tuple[str, int]


def label(partition: Partition) -> str:
    return f"{partition[0]}/{partition[1]}"


@dataclass(frozen=True)
class OffsetRange:
    """The first offset that a partition still holds, and the one after its last message."""

    first: int
    end: int


class Cluster:
    """Answers of one cluster. Every question has a limit of time, and says who did not answer."""

    def __init__(self, settings: KafkaSettings, kafka: Kafka) -> None:
        from confluent_kafka.admin import AdminClient

        self._kafka = kafka
        self._heard = ClientErrors(settings)
        # A connection that carries nothing more is given up before the next question is.
        own = {"error_cb": self._heard, "socket.timeout.ms": int(ASK_SECONDS * 500)}
        options: dict[str, Any] = {**client_options(settings), **own}
        self._admin = AdminClient(options, logger=quiet)

    def partitions(self) -> dict[Partition, str]:
        """The partitions that the source chooses, each with the identity of its topic.

        A topic that is deleted and recreated has another identity: its offsets mean other records.
        """
        from confluent_kafka import KafkaException, TopicCollection

        seen = self._topics()
        try:
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
            raise in_words(error) from None
        missing = {name.partition("/")[0] for name in self._kafka.names} - set(names)
        if missing:
            absent = ", ".join(sorted(missing))
            self._refuse_forbidden(sorted(missing))
            raise RefusedError(
                f"TOPIC_MISSING: the cluster has no topic {absent}. Create it, or correct the name."
            )
        return {one: f"{seen.cluster_id}/{ids[one[0]]}" for one in chosen}

    def _topics(self) -> ClusterMetadata:
        from confluent_kafka import KafkaException

        self._admin.poll(0)  # what was told before this question is another story
        self._heard.forget()
        for turn, seconds in enumerate(TURNS_SECONDS, start=1):
            try:
                return self._admin.list_topics(timeout=seconds)
            except KafkaException as error:
                self._admin.poll(0)
                down = self._heard.down and turn > 1
                if self._heard.refused or down or turn == len(TURNS_SECONDS):
                    raise self._heard.words(error) from None
        raise AssertionError("the last turn returns or raises")

    def _refuse_forbidden(self, names: list[str]) -> None:
        """A topic that this user may not see is not among those that there are."""
        from confluent_kafka import KafkaError, KafkaException

        for name in names:
            try:
                seen = self._admin.list_topics(name, timeout=ASK_SECONDS).topics[name]
            except KafkaException as error:
                raise in_words(error) from None
            if seen.error is not None and seen.error == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise forbidden(f"topic {name}, if there is one")

    def introduce(self, consumer: Consumer) -> None:
        """Let a consumer hear of new partitions: it knows those that there were when it asked."""
        from confluent_kafka import KafkaException

        try:
            consumer.list_topics(timeout=ASK_SECONDS)
        except KafkaException as error:
            raise in_words(error) from None

    def bounds(self, consumer: Consumer, partition: Partition) -> OffsetRange:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            first, end = consumer.get_watermark_offsets(
                TopicPartition(*partition), timeout=ASK_SECONDS
            )
        except KafkaException as error:
            raise in_words(error) from None
        return OffsetRange(first, end)

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
            raise in_words(error) from None
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
            raise in_words(error) from None


def find_partitions(kafka: Kafka, settings: KafkaSettings) -> dict[Partition, str]:
    """The partitions of a source, asked once."""
    return Cluster(settings, kafka).partitions()
