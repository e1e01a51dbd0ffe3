"""Messages that the tape lacks and the cluster has no more: a loss, never silence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tapeline.books.gaps import Gap, accept_gap, gaps_of
from tapeline.books.operator import OperatorTape
from tapeline.connect.kafka_cluster import OffsetRange, Partition, label
from tapeline.errors import OperationError
from tapeline.intake.kafka.next_offsets import NextOffsets


@dataclass(frozen=True)
class Loss:
    """What is missing of a partition, and where one could go on."""

    kind: str
    first: int
    last: int | None
    goes_on: int
    words: str

    def error(self, name: str) -> OperationError:
        return OperationError(
            f"{self.kind}: {name}: {self.words}. Nothing after it was read. Set kafka.on_loss = "
            "'go_on' to record the gap and continue after it."
        )


def find_loss(
    partition: Partition, identity: str, bounds: OffsetRange, reached: NextOffsets
) -> Loss | None:
    """Compare where a partition stands on the tape with what the cluster has."""
    name = label(partition)
    stands, known = reached.next.get(name), reached.identity.get(name)
    if stands is None:
        return None
    if known and known != identity:
        # A topic that was recreated, or a whole cluster: its offsets mean other messages.
        same_cluster = known.partition("/")[0] == identity.partition("/")[0]
        what = "topic" if same_cluster else "cluster"
        words = f"this is another {what} than the recorded one, whose next offset is {stands}"
        return Loss(f"{what.upper()}_REPLACED", stands, None, bounds.first, words)
    if stands < bounds.first:
        words = f"offsets {stands} to {bounds.first - 1} are gone (retention)"
        return Loss("KAFKA_DATA_LOSS", stands, bounds.first - 1, bounds.first, words)
    if stands > bounds.end:
        words = f"the next offset is {stands}, but the partition ends before {bounds.end}"
        return Loss("KAFKA_DATA_LOSS", bounds.end, stands - 1, bounds.end, words)
    return None


def gone_loss(stands: int, end: int) -> Loss | None:
    """What was seen of a partition that is there no more, and was not taken."""
    if stands >= end:
        return None
    words = f"the topic is gone, with offsets {stands} to {end - 1}"
    return Loss("KAFKA_DATA_LOSS", stands, end - 1, end, words)


@dataclass(frozen=True)
class TopicOwner:
    """Whose topics are taken: the group that a cluster knows it by, and its operator's tape."""

    pipeline: str
    source: str
    operator: OperatorTape
    who: str

    @property
    def group(self) -> str:
        return f"tapeline.{self.pipeline}.{self.source}"

    def gaps(self) -> list[Gap]:
        return gaps_of(self.operator.folder, self.source)

    def accept(
        self, partition: Partition, identity: str, loss: Loss, behind: int, at: datetime
    ) -> Gap:
        """Record, durably, that the source continues after a loss."""
        gap = Gap(
            source=self.source,
            topic=partition[0],
            partition=partition[1],
            kind=loss.kind,
            first=loss.first,
            last=loss.last,
            goes_on=loss.goes_on,
            identity=identity,
            behind=behind,
            words=loss.words,
        )
        accept_gap(self.operator, gap, self.who, at)
        return gap
