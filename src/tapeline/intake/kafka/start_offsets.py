"""Where partitions begin that the tape does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tapeline.connect.kafka import Offsets, moment_of
from tapeline.connect.kafka_cluster import Cluster, OffsetRange, Partition, label

if TYPE_CHECKING:
    from confluent_kafka import Consumer


def beginnings(
    starting: Offsets, cluster: Cluster, consumer: Consumer, bounds: Mapping[Partition, OffsetRange]
) -> dict[str, int]:
    """The first offset of each partition, as `starting` says; by the name of the partition."""
    moment = moment_of(starting) if bounds else None
    if moment is None:
        return {label(one): _within(starting, label(one), here) for one, here in bounds.items()}
    found = cluster.at(consumer, list(bounds), moment)
    return {label(one): bounds[one].end if at is None else at for one, at in found.items()}


def _within(starting: Offsets, name: str, bounds: OffsetRange) -> int:
    if isinstance(starting, str):
        return bounds.end if starting == "latest" else bounds.first
    return max(bounds.first, min(starting.get(name, bounds.first), bounds.end))
