"""The backlog: tape batches that are not in the books yet, and what the next batch takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tapeline.books.tape import Tape
from tapeline.books.tape_batches import TapeBatch

TapeRanges = dict[str, list[TapeBatch]]


class Backlog:
    """The tape batches after the flow's position, by source. Other threads add to them."""

    def __init__(self, tapes: Mapping[str, Tape], position: Mapping[str, int]) -> None:
        self.position: dict[str, int] = {**dict.fromkeys(tapes, 0), **position}
        self._pending = {name: tape.since(self.position[name]) for name, tape in tapes.items()}
        self._booked = {
            name: pending[0].first_delivery - 1 if pending else tapes[name].last_delivery
            for name, pending in self._pending.items()
        }

    def add(self, source: str, batch: TapeBatch) -> None:
        """One that is known already is not taken twice."""
        pending = self._pending[source]
        if batch.number > (pending[-1].number if pending else self.position[source]):
            pending.append(batch)

    @property
    def records(self) -> int:
        return sum(b.records for batches in self._pending.values() for b in list(batches))

    @property
    def largest(self) -> int:
        """The records of the largest tape batch that waits: it is taken whole."""
        return max((b.records for some in self._pending.values() for b in list(some)), default=0)

    def of(self, source: str) -> tuple[int, datetime | None]:
        """How many records of a source wait, and when the oldest came on the tape."""
        batches = list(self._pending[source])
        return sum(b.records for b in batches), batches[0].at if batches else None

    def booked(self, source: str) -> int:
        """The last delivery of a source that is in the books, and all before it."""
        return self._booked[source]

    def pieces(self, source: str) -> int:
        """How many pieces of a source wait."""
        return sum(len(batch.pieces) for batch in list(self._pending[source]))

    def cut(self, most_records: int, most_bytes: int, after: TapeRanges) -> TapeRanges:
        """Select whole tape batches up to the limits, at least one, starting after `after`."""
        cut: TapeRanges = {}
        records, size = 0, 0
        for source, pending in self._pending.items():
            for batch in list(pending)[len(after.get(source, ())) :]:
                records, size = records + batch.records, size + batch.bytes
                if cut and (records > most_records or size > most_bytes):
                    return cut
                cut.setdefault(source, []).append(batch)
        return cut

    def take(self, cut: TapeRanges) -> None:
        """A cut is in the books: move the position past it."""
        for source, batches in cut.items():
            self.position[source] = batches[-1].number
            self._booked[source] = max(self._booked[source], batches[-1].last_delivery)
            del self._pending[source][: len(batches)]


def records_of(cut: TapeRanges) -> int:
    return sum(batch.records for batches in cut.values() for batch in batches)
