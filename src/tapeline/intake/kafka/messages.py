"""Messages on their way into a piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tapeline.books.pieces import DeliveryPart, PiecePart
from tapeline.books.schemas import MESSAGE, MOMENT
from tapeline.connect.kafka_cluster import Partition, label
from tapeline.errors import TapelineBug
from tapeline.formats.limits import IntakeLimits, too_long
from tapeline.formats.lines import Lines

if TYPE_CHECKING:
    from confluent_kafka import Message

NO_VALUE = "the message has no value"


def partition_of(message: Message) -> Partition:
    topic, partition = message.topic(), message.partition()
    if topic is None or partition is None:
        raise TapelineBug("a message without a topic or a partition.")
    return topic, partition


def by_size(messages: list[Message], limits: IntakeLimits) -> Iterator[list[Message]]:
    """Messages in order, as many as one piece may hold at a time."""
    if sum(map(_size, messages)) <= limits.bytes_per_piece:
        yield messages
        return
    some: list[Message] = []
    size = 0
    for message in messages:
        length = min(_size(message), limits.record_bytes)
        if some and size + length > limits.bytes_per_piece:
            yield some
            some, size = [], 0
        some.append(message)
        size += length
    yield some


def _size(message: Message) -> int:
    return len(message) + len(message.key() or b"")


def part_of(
    partition: Partition, identity: str, delivery: int, messages: list[Message], limit_bytes: int
) -> PiecePart:
    """The messages of one partition as a part of a piece."""
    values = [message.value() for message in messages]
    faults = {
        index: NO_VALUE if value is None else too_long(len(value), limit_bytes)
        for index, value in enumerate(values)
        if value is None or len(value) > limit_bytes
    }
    kept = [(value or b"")[:limit_bytes] for value in values]
    offsets = np.fromiter((m.offset() for m in messages), np.int64, len(messages))
    stamps = (message.timestamp() for message in messages)
    moments = [stamp if kind else None for kind, stamp in stamps]  # kind 0: it has none
    facts = DeliveryPart(
        delivery=delivery,
        name=label(partition),
        sha256=None,
        bytes=sum(map(len, kept)),
        records=len(messages),
        first_line=int(offsets[0]),
        last_line=int(offsets[-1]),
        complete=True,
        identity=identity,
        sent_ms=min((moment for moment in moments if moment is not None), default=None),
    )
    lengths = np.fromiter(map(len, kept), np.int64, len(kept))
    lines = Lines(b"".join(kept), lengths, offsets, faults)
    return PiecePart(facts, (lines,), None, _beside(partition, messages, moments))


def _beside(
    partition: Partition, messages: list[Message], moments: list[int | None]
) -> pa.Table | None:
    """What the tape keeps of messages besides their values."""
    count = len(messages)
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.headers() for message in messages], MESSAGE.field("headers").type),
        pa.repeat(partition[0], count),
        pa.repeat(pa.scalar(partition[1], pa.int32()), count),
        pa.array(moments, pa.timestamp("ms", "UTC")).cast(MOMENT),
    ]
    return pa.table(columns, schema=MESSAGE)
