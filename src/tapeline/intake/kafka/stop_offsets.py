"""Where a source stops: an offset in each partition, at which nothing more is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tapeline.connect.kafka import Offsets, moment_of
from tapeline.connect.kafka_cluster import Cluster, OffsetRange, Partition, label

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


class StopOffsets:
    """The ends that a declaration names, as far as they are known."""

    def __init__(self, said: Offsets | None) -> None:
        self._said = said
        self._moment = None if said is None else moment_of(said)
        self._stops = {} if said is None or isinstance(said, str) else dict(said)
        self._looked = False

    def look(
        self, cluster: Cluster, consumer: Consumer, bounds: Mapping[Partition, OffsetRange]
    ) -> None:
        """Find the ends that can be known by now."""
        unknown = [one for one in bounds if label(one) not in self._stops]
        if self._said == "latest":
            # As of the start of the run: what appears later is after the end.
            for one in unknown:
                self._stops[label(one)] = bounds[one].first if self._looked else bounds[one].end
        elif self._moment is not None and unknown:
            found = cluster.at(consumer, unknown, self._moment)
            self._stops |= {label(one): at for one, at in found.items() if at is not None}
        self._looked = True

    def keeps(self, name: str, message: Message) -> bool:
        """Whether a message lies before the end; the first that is late enough is the end."""
        offset = message.offset() or 0
        if self._moment is not None and name not in self._stops:
            kind, milliseconds = message.timestamp()
            if kind and milliseconds >= self._moment.timestamp() * 1000:
                self._stops[name] = offset
        return offset < self.bound(name, offset + 1)

    def bound(self, name: str, offset: int) -> int:
        """An offset, or the end of its partition if that is lower."""
        return min(offset, self._stops.get(name, offset))

    def is_over(self, name: str, offset: int) -> bool:
        return name in self._stops and offset >= self._stops[name]
