"""The intake of topics: messages become pieces, as files do, and the piece itself is the position.

Delivers: every committed message exactly once, in the order of its partition. A piece names the
range of offsets that it holds of each partition. What is published, or on the tape, says where to
go on; the cluster's own record of a group's offsets is written for other people's tools and never
read.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tapeline.connect.kafka import Kafka, client_options, moment_of
from tapeline.errors import OperationError, TapelineBug
from tapeline.run.intake.deliveries import IntakeLimits
from tapeline.run.intake.findings import Findings
from tapeline.run.intake.lines import Lines
from tapeline.run.intake.pieces import DeliveryPart, Part, PieceFacts
from tapeline.run.intake.shelf import Shelf
from tapeline.run.topics.cluster import Bounds, Cluster, Partition, label, quiet
from tapeline.run.topics.trouble import in_words
from tapeline.settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

LOOK_SECONDS = 5.0  # how often partitions, identities and lost offsets are looked for
NO_VALUE = "the message has no value"


class Reached:
    """How far each partition is published, and of which topic that was."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}
        self.identity: dict[str, str] = {}

    def note(self, part: Mapping[str, Any]) -> None:
        name = part["name"]
        if part.get("identity") != self.identity.get(name):
            self.next.pop(name, None)  # another topic of the same name: its offsets begin anew
        self.identity[name] = part.get("identity") or ""
        self.next[name] = max(self.next.get(name, 0), part["last_line"] + 1)


class TopicIntake:
    """The intake of one source's topics."""

    def __init__(
        self,
        kafka: Kafka,
        home: Path,
        settings: KafkaSettings,
        limits: IntakeLimits,
        clock: Callable[[], datetime],
        group: str,
    ) -> None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._kafka = kafka
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._options = {
            **client_options(settings),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        self._shelf = Shelf(home)
        self._findings = Findings(home / "findings.jsonl", clock)
        self._turn = threading.Lock()
        self._consumer: Consumer | None = None
        self._cluster = Cluster(settings, kafka)
        self._sound = False  # what is in memory agrees with what is on disk
        self._ends: dict[str, int] = {}  # where partitions ended when they were last looked at
        self._identities: dict[Partition, str] = {}
        self._looked = 0.0
        self._delivery = 0
        self._through = 0
        self._told: dict[str, int] = {}
        self.reached = Reached()
        self.rounds = 0

    def recover(self, last_piece: int, last_delivery: int) -> None:
        """Finish what a crash interrupted. `reached` knows by now what is on the tape."""
        with self._turn:
            self._delivery = max(self._delivery, last_delivery)
            self._through = max(self._through, last_piece)
            self._resume()

    def take(self) -> int:
        """Fetch what there is, as one piece; the number of pieces published."""
        from confluent_kafka import KafkaException

        with self._turn:
            before = self._shelf.last_piece
            if not self._sound:
                self._resume()
            self._sound = False
            try:
                self._look()
                good, ends = self._fetch()
            except KafkaException as error:
                raise in_words(error) from None
            if good:
                self._publish(good)
            # What lies between the last message and the end are marks of transactions.
            for name, end in ends.items():
                self.reached.next[name] = max(self.reached.next[name], end)
            self._tell_group()
            self.rounds += 1
            self._sound = True
            return self._shelf.last_piece - before

    def settle(self, through_piece: int) -> None:
        """Pieces up to this one are on the tape."""
        self._through = max(self._through, through_piece)

    def waiting(self) -> tuple[int, int]:
        """Messages that are in the topics and not published; an upper bound."""
        consumer = self._consumer
        if consumer is None:
            return 0, 0
        from confluent_kafka import TopicPartition

        behind = 0
        for partition in self._identities:
            name = label(partition)
            # The client knows the end once a fetch was answered; before that, the last look does.
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            behind += max(0, max(end, self._ends.get(name, 0)) - self.reached.next.get(name, 0))
        return behind, 0

    @contextmanager
    def still(self) -> Iterator[None]:
        with self._turn:
            yield

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _look(self) -> None:
        """Now and then: which partitions there are, and whether offsets have vanished."""
        if self._consumer is not None and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        from confluent_kafka import Consumer

        if self._consumer is None:
            self._consumer = Consumer(dict(self._options), logger=quiet)
        found = self._cluster.partitions()
        bounds = {one: self._cluster.bounds(self._consumer, one) for one in found}
        for partition, identity in found.items():
            self._refuse_another(partition, identity)
            self._check_bounds(partition, bounds[partition])
        self._ends = {label(one): bounds[one].end for one in found}
        new = [one for one in found if one not in self._identities]
        if new or found.keys() != self._identities.keys():
            self._begin(new, bounds)
            self._identities = found
            self._assign()
        self._looked = time.monotonic()

    def _refuse_another(self, partition: Partition, identity: str) -> None:
        """A topic that was made anew: its offsets mean other messages."""
        name = label(partition)
        known = self.reached.identity.get(name)
        if not known or known == identity:
            return
        if self._settings.on_loss == "stop":
            raise OperationError(
                f"TOPIC_REPLACED: {name} is another topic than the one on the tape, which stands "
                f"before offset {self.reached.next[name]}. Set kafka.on_loss = 'go_on' to take the "
                "new one from its beginning."
            )
        self._findings.add("TOPIC_REPLACED", name, f"goes on with the new one, {identity}")
        self.reached.identity[name] = identity
        self.reached.next.pop(name, None)
        self._identities.pop(partition, None)

    def _check_bounds(self, partition: Partition, bounds: Bounds) -> None:
        """Messages that the tape lacks and the cluster has no more are a gap, never silence."""
        name = label(partition)
        stands = self.reached.next.get(name)
        if stands is None or bounds.first <= stands <= bounds.end:
            return
        lost = (
            f"offsets {stands} to {bounds.first - 1} are gone (retention)"
            if stands < bounds.first
            else f"offset {stands} comes next, but the partition ends before {bounds.end}"
        )
        if self._settings.on_loss == "stop":
            raise OperationError(
                f"KAFKA_DATA_LOSS: {name}: {lost}. Nothing was taken beyond it. Set kafka.on_loss "
                "= 'go_on' to record the gap and go on behind it."
            )
        self._findings.add("KAFKA_DATA_LOSS", name, lost)
        self.reached.next[name] = bounds.first if stands < bounds.first else bounds.end
        self._identities.pop(partition, None)

    def _begin(self, partitions: list[Partition], bounds: Mapping[Partition, Bounds]) -> None:
        """Where partitions begin that the tape does not know."""
        assert self._consumer is not None
        unknown = [one for one in partitions if label(one) not in self.reached.next]
        starting = self._kafka.starting
        moment = moment_of(starting)
        if moment is not None:
            found = self._cluster.at(self._consumer, unknown, moment)
            self.reached.next |= {label(one): offset for one, offset in found.items()}
            return
        for one in unknown:
            first, end = bounds[one].first, bounds[one].end
            offset = end if starting == "latest" else first
            if not isinstance(starting, str):
                offset = max(first, min(starting.get(label(one), first), end))
            self.reached.next[label(one)] = offset

    def _assign(self) -> None:
        from confluent_kafka import TopicPartition

        assert self._consumer is not None
        self._consumer.assign(
            [TopicPartition(*one, self.reached.next[label(one)]) for one in self._identities]
        )

    def _fetch(self) -> tuple[list[Message], dict[str, int]]:
        """The messages that have come, and the ends of partitions that were reached."""
        from confluent_kafka import KafkaError, KafkaException

        assert self._consumer is not None
        messages = self._consumer.consume(
            self._limits.records_per_piece, timeout=self._settings.wait_seconds
        )
        good: list[Message] = []
        ends: dict[str, int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                good.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[label(_partition(message))] = int(message.offset() or 0)
            else:
                # Before anything of this fetch is kept: it is fetched again from where it stood.
                raise KafkaException(error)
        return good, ends

    def _resume(self) -> None:
        """After a start or an error: a consumer of its own, at what is published."""
        self.close()
        self._identities = {}
        for piece in self._shelf.recover(max(self._through, self._shelf.last_piece)):
            self._note(piece)
        self._sound = True

    def _publish(self, messages: list[Message]) -> None:
        for some in self._by_size(messages):
            grouped: dict[Partition, list[Message]] = defaultdict(list)
            for message in some:
                grouped[_partition(message)].append(message)
            parts = [self._part(one, grouped[one]) for one in sorted(grouped)]
            self._shelf.stage(parts, self._clock())
        pieces = self._shelf.decide()
        self._shelf.finish()
        for piece in pieces:
            self._note(piece)

    def _by_size(self, messages: list[Message]) -> Iterator[list[Message]]:
        """Messages in order, as many as one piece may hold at a time."""
        some: list[Message] = []
        size = 0
        for message in messages:
            length = min(len(message.value() or b""), self._limits.record_bytes)
            if some and size + length > self._limits.bytes_per_piece:
                yield some
                some, size = [], 0
            some.append(message)
            size += length
        yield some

    def _part(self, partition: Partition, messages: list[Message]) -> Part:
        self._delivery += 1
        limit = self._limits.record_bytes
        values = [message.value() for message in messages]
        faults = {
            index: NO_VALUE if value is None else _too_long(len(value), limit)
            for index, value in enumerate(values)
            if value is None or len(value) > limit
        }
        kept = [(value or b"")[:limit] for value in values]
        offsets = np.fromiter((m.offset() for m in messages), np.int64, len(messages))
        facts = DeliveryPart(
            delivery=self._delivery,
            name=label(partition),
            sha256=None,
            bytes=sum(map(len, kept)),
            records=len(messages),
            first_line=int(offsets[0]),
            last_line=int(offsets[-1]),
            complete=True,
            identity=self._identities[partition],
        )
        lengths = np.fromiter(map(len, kept), np.int64, len(kept))
        lines = Lines(b"".join(kept), lengths, offsets, faults)
        return Part(facts, (lines,), None)

    def _note(self, piece: PieceFacts) -> None:
        for part in piece.deliveries:
            self._delivery = max(self._delivery, part.delivery)
            self.reached.note(vars(part))

    def _tell_group(self) -> None:
        """Let ordinary lag tools see how far the source is; nobody waits for the answer."""
        from confluent_kafka import KafkaException, TopicPartition

        assert self._consumer is not None
        moved = {n: o for n, o in self.reached.next.items() if self._told.get(n) != o}
        if not moved:
            return
        offsets = [TopicPartition(n.rpartition("/")[0], int(n.rpartition("/")[2]), o)
                   for n, o in moved.items()]  # fmt: skip
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
            self._told |= moved
        except KafkaException:
            return  # it is tried again with the next messages


def _partition(message: Message) -> Partition:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        raise TapelineBug("a message without a topic or a partition.")
    return topic, partition


def _too_long(size_bytes: int, limit_bytes: int) -> str:
    return f"message is {size_bytes:,} bytes long, the limit is {limit_bytes:,}; the rest is lost"
