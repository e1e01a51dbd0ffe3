"""The cluster's own record of how far a source is: written for lag tools, and never read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer


class GroupOffsets:
    """What the cluster was told last; nobody waits for its answer."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def tell(self, consumer: Consumer, reached: Mapping[str, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        moved = {name: at for name, at in reached.items() if self._told.get(name) != at}
        if not moved:
            return
        offsets = [
            TopicPartition(topic, int(partition), at)
            for name, at in moved.items()
            for topic, _, partition in [name.rpartition("/")]
        ]
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
            self._told |= moved
        except KafkaException:
            return  # it is tried again with the next messages
