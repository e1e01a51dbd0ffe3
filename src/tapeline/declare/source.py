"""A source of one's own: an outside system that is asked for what is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Polled:
    """Records as they came, and where the source is after them.

    `position` is any text of the source's own. The tape keeps it together with the records. A
    system that remembers what was acknowledged needs none.
    """

    records: Sequence[bytes] = ()
    position: str = ""


class Source(Protocol):
    """An outside system. One thread uses it; after an error it is closed and opened again.

    A source that can go on at a position is taken exactly once: the tape keeps records and position
    together. One that only knows acknowledgements delivers at least once: records whose
    acknowledgement was lost come again, and a table with a key counts them once.
    """

    path: str  # what a plan and the status show: never a password

    def open(self, position: str) -> None:
        """Connect. `position` is that of the last records on the tape; "" before the first."""

    def poll(self, most_records: int, seconds: float) -> Polled:
        """What has come since, in order. Wait so long if there is nothing, then return nothing."""

    def acknowledge(self, position: str) -> None:
        """All up to here is on the tape, and stays there. Also called after `open`."""

    def waiting(self) -> int:
        """How many records are known to wait beyond what was polled; 0 if nobody knows."""
        return 0

    def close(self) -> None:
        """Disconnect. Called also when `open` failed, or twice."""


class Intakes(Protocol):
    """The kinds of intake that a connector may ask for."""

    def from_folder(self, files: Any) -> Any:
        """Files of a drop folder."""

    def from_topics(self, kafka: Any) -> Any:
        """Topics of a Kafka cluster."""

    def from_own(self, source: Source) -> Any:
        """A source of one's own."""

    def from_query(self, query: Any) -> Any:
        """A Structured Streaming query."""


class SomeIntakes:
    """An `Intakes` that takes nothing, to ask about some kinds of source: `other` is the rest."""

    def other(self, path: str) -> Any:
        """The answer for a kind that is not overridden; `path` is what a plan shows of it."""
        return None

    def from_folder(self, files: Any) -> Any:
        return self.other(files.path)

    def from_topics(self, kafka: Any) -> Any:
        return self.other(kafka.path)

    def from_own(self, source: Source) -> Any:
        return self.other(source.path)

    def from_query(self, query: Any) -> Any:
        return self.other(query.path)
