"""The intake of topics: messages become pieces, as files do, and the tape is the position.

Delivers: every committed message exactly once, in the order of its partition. A row of the tape
names the range of offsets that it holds of each partition, and so says where to go on. The
cluster's own record of a group's offsets is written for other people's tools and never read.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from tapeline.books.pieces import DeliveryPart, PiecePart
from tapeline.books.tape import Tape
from tapeline.connect.kafka import Kafka, client_options, quiet
from tapeline.connect.kafka_cluster import ASK_SECONDS, Cluster, Partition, label
from tapeline.connect.kafka_errors import in_words
from tapeline.formats.limits import IntakeLimits
from tapeline.intake.kafka.group_offsets import GroupOffsets
from tapeline.intake.kafka.lag import Lag, PartitionLag
from tapeline.intake.kafka.losses import Loss, TopicOwner, find_loss, gone_loss
from tapeline.intake.kafka.messages import by_size, part_of, partition_of
from tapeline.intake.kafka.next_offsets import NextOffsets
from tapeline.intake.kafka.start_offsets import beginnings
from tapeline.intake.kafka.stop_offsets import StopOffsets
from tapeline.intake.source_intake import SourceIntake
from tapeline.settings import KafkaSettings
from tapeline.store.recovery import Recovery

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

LEAVE_SECONDS = 5.0
LOOK_SECONDS = 5.0  # how often partitions, identities and lost offsets are looked for


class TopicIntake(SourceIntake):
    """The intake of one source's topics."""

    answer_seconds = ASK_SECONDS

    def __init__(
        self,
        kafka: Kafka,
        tape: Tape,
        settings: KafkaSettings,
        limits: IntakeLimits,
        clock: Callable[[], datetime],
        owner: TopicOwner,
    ) -> None:
        self._kafka = kafka
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._options = {
            **client_options(settings),
            "group.id": owner.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        self._tape = tape
        self._turn = threading.Lock()
        self._consumer: Consumer | None = None
        self._cluster = Cluster(settings, kafka)
        self._recovery = Recovery(self._resume)
        self._ends: dict[Partition, int] = {}  # where partitions ended at the last look
        self._identities: dict[Partition, str] = {}
        self._going: set[Partition] = set()  # those that are fetched
        self._looked = 0.0
        self._delivery = 0
        self._group = GroupOffsets()
        self._owner = owner
        self._ending = StopOffsets(kafka.ending)
        self._written: dict[str, int] = {}  # the same ends, open transactions included
        self.reached = NextOffsets(owner.gaps())
        self.lag = Lag()
        self.rounds = 0
        self.has_read = False  # anything, or the end of a partition that holds nothing

    def recover(self, booked: int = 0) -> None:
        """Finish what a crash interrupted, and learn from the tape where to go on.

        `booked` is the last delivery that is in the books.
        """
        with self._turn:
            self._delivery = self._tape.last_delivery
            for part in self._tape.deliveries():
                self._note(part, booked)
            self._recovery.again()
            self.reached.pass_gaps()

    def take(self) -> int:
        """Fetch what there is; the number of pieces that came on the tape."""
        with self._turn:
            before = self._tape.last_piece
            with self._recovery.step():
                self._take()
            return self._tape.last_piece - before

    def _take(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._look()
            good, ends = self._fetch()
        except KafkaException as error:
            raise in_words(error) from None
        self.has_read = self.has_read or bool(good or ends)
        if good:
            self._append(good)
        # What lies between the last message and the end are marks of transactions.
        for name, end in ends.items():
            stood = self.reached.next[name]
            self.reached.next[name] = max(stood, self._ending.bound(name, end))
        self._stop_at_ends()
        self._group.tell(self._reading, self.reached.next)
        self._measure()
        self.rounds += 1

    def waiting(self) -> tuple[int, int]:
        """Messages that can be taken and are not on the tape; an upper bound."""
        left = self._left()
        for partition, end in self._ends.items():
            name = label(partition)
            if self._written.get(name, 0) > end:  # what an open transaction holds back
                left[name] = max(0, self._ending.bound(name, end) - self.reached.next.get(name, 0))
        return sum(left.values()), 0

    def look_again(self) -> bool:
        """Let the next take() look; whether transactions held messages back at the last look.

        Also one that is committed does so for a moment: the cluster marks its end by and by.
        """
        self._looked = -LOOK_SECONDS
        return sum(self._left().values()) > 0

    def _left(self) -> dict[str, int]:
        """Messages between what is on the tape and the ends of partitions, or where to stop."""
        consumer = self._consumer
        if consumer is None:
            return {}
        from confluent_kafka import TopicPartition

        left: dict[str, int] = {}
        for partition in list(self._identities):
            name = label(partition)
            # The client knows the end once a fetch was answered; before that, the last look does.
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
            end = self._ending.bound(name, max(end, self._written.get(name, 0)))
            left[name] = max(0, end - self.reached.next.get(name, 0))
        return left

    def _measure(self) -> None:
        """What is left in the topics, messages of open transactions included."""
        stands = {name: (left, self.reached.next[name]) for name, left in self._left().items()}
        self.lag.leave(stands, self._clock())

    def partitions(self, booked: int, now: datetime) -> Mapping[str, PartitionLag]:
        """The lag of the books, by partition."""
        return self.lag.partitions(booked, now)

    @contextmanager
    def still(self) -> Iterator[None]:
        with self._turn:
            yield

    def close(self) -> None:
        """Leave the cluster. One that is away is not waited for."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            # While a commit is unanswered its close() does not return (librdkafka, issue 3740).
            leaving = threading.Thread(target=consumer.close, daemon=True)
            leaving.start()
            leaving.join(LEAVE_SECONDS)

    @property
    def _reading(self) -> Consumer:
        assert self._consumer is not None, "nothing is fetched before a look"
        return self._consumer

    def _look(self) -> None:
        """Now and then: which partitions there are, and whether offsets have vanished."""
        if self._consumer is not None and time.monotonic() - self._looked < LOOK_SECONDS:
            return
        from confluent_kafka import Consumer

        if self._consumer is None:
            self._consumer = Consumer(dict(self._options), logger=quiet)
        found = self._cluster.partitions()
        if not found.keys() <= self._identities.keys():
            self._cluster.introduce(self._consumer)
        bounds = {one: self._cluster.bounds(self._consumer, one) for one in found}
        before = set(self._identities)
        for partition, identity in found.items():
            loss = find_loss(partition, identity, bounds[partition], self.reached)
            self._refuse_loss(partition, identity, loss)
        self._refuse_gone(found)
        self._ends = {one: bounds[one].end for one in found}
        self._written = self._cluster.written(found)
        self._ending.look(self._cluster, self._consumer, bounds)
        new = [one for one in found if one not in self._identities]
        if new or found.keys() != before:
            unknown = {one: bounds[one] for one in new if label(one) not in self.reached.next}
            starts = beginnings(self._kafka.starting, self._cluster, self._consumer, unknown)
            self.reached.next |= starts
            self._identities = found
            self._assign()
        self._looked = time.monotonic()

    def _refuse_gone(self, found: Mapping[Partition, str]) -> None:
        """Partitions of a pattern may vanish; what was seen there and not taken is a gap."""
        for partition in [one for one in self._ends if one not in found]:
            name = label(partition)
            loss = gone_loss(self.reached.next.get(name, 0), self._ends[partition])
            self._refuse_loss(partition, self.reached.identity.get(name, ""), loss)

    def _refuse_loss(self, partition: Partition, identity: str, loss: Loss | None) -> None:
        """Stop at a gap, or record it and continue after it."""
        if loss is None:
            return
        if self._settings.on_loss == "stop":
            raise loss.error(label(partition))
        gap = self._owner.accept(partition, identity, loss, self.reached.noted, self._clock())
        self.reached.skip(gap)
        self._identities.pop(partition, None)

    def _assign(self) -> None:
        from confluent_kafka import TopicPartition

        stands = {one: self.reached.next[label(one)] for one in self._identities}
        going = {one for one, at in stands.items() if not self._ending.is_over(label(one), at)}
        self._reading.assign([TopicPartition(*one, stands[one]) for one in sorted(going)])
        self._going = going

    def _stop_at_ends(self) -> None:
        """Nothing more is fetched of a partition that has come to its end."""
        names = {one: label(one) for one in self._going}
        if any(self._ending.is_over(n, self.reached.next[n]) for n in names.values()):
            self._assign()

    def _fetch(self) -> tuple[list[Message], dict[str, int]]:
        """The messages that have come, and the ends of partitions that were reached."""
        from confluent_kafka import KafkaError, KafkaException

        messages = self._reading.consume(
            self._limits.piece_records, timeout=self._settings.wait_seconds
        )
        whole = self._kafka.ending is None
        good: list[Message] = []
        ends: dict[str, int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                if whole or self._ending.keeps(label(partition_of(message)), message):
                    good.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[label(partition_of(message))] = int(message.offset() or 0)
            else:
                # Before anything of this fetch is kept: it is fetched again from where it stood.
                raise KafkaException(error)
        return good, ends

    def _resume(self) -> None:
        """After a start or an error: a consumer of its own, at what is on the tape."""
        self.close()
        self._identities = {}
        self._tape.discard()
        for batch in self._tape.recover():
            self._note_all(batch.deliveries)

    def _append(self, messages: list[Message]) -> None:
        for some in by_size(messages, self._limits):
            grouped: dict[Partition, list[Message]] = defaultdict(list)
            for message in some:
                grouped[partition_of(message)].append(message)
            parts = [self._part(one, grouped[one]) for one in sorted(grouped)]
            self._tape.stage(parts, self._clock())
        for batch in self._tape.append(self._limits.tape_batch):
            self._note_all(batch.deliveries)

    def _part(self, partition: Partition, messages: list[Message]) -> PiecePart:
        self._delivery += 1
        identity, limit = self._identities[partition], self._limits.record_bytes
        return part_of(partition, identity, self._delivery, messages, limit)

    def _note_all(self, parts: Iterable[DeliveryPart]) -> None:
        for part in parts:
            self._delivery = max(self._delivery, part.delivery)
            self._note(part)

    def _note(self, part: DeliveryPart, booked: int = 0) -> None:
        """A part of a piece is on the tape, or even in the books."""
        self.has_read = True
        self.reached.note(vars(part))
        if part.delivery > booked:
            self.lag.take(vars(part))
