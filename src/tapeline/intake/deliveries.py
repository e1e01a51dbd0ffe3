"""All deliveries of a pipeline, newest first: waiting, on the tape, booked, empty and rejected.

Reads folders, the tape and the books, and needs no running pipeline.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from tapeline.books import Books
from tapeline.books.deliveries import (
    STATES,
    Delivery,
    DeliveryFilter,
    State,
    TapeOfSource,
    with_verdicts,
)
from tapeline.books.pulls import read_pulls
from tapeline.books.quarantine import Actor
from tapeline.books.reader import ReadPoint
from tapeline.books.rejected import RejectedFile, RejectedFiles
from tapeline.books.status import read_status
from tapeline.errors import OperationError, QuestionError, did_you_mean
from tapeline.intake.retry import dismiss, retry
from tapeline.intake.waiting import waiting_files

MOST_OTHERS = 10
REJECTED = "rejected:"
# The name that a pull gives to a page; names of pulls are words.
PAGE = r"(?:{})-[0-9a-f]{{8}}-\d{{12}}\.jsonl"
OF_TAPE = {None, "on the tape", "booked", "empty"}
OF_REJECTED = {None, "rejected", "retried", "dismissed"}
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DeliveryPage:
    """Some deliveries; `more` when there are older ones."""

    deliveries: list[Delivery]
    more: bool


@dataclass(frozen=True)
class _Door:
    """What comes through a source: an `Intakes` that takes nothing."""

    project: Path

    def from_folder(self, files: Any) -> tuple[str, Path | None]:
        return "file", (self.project / files.path).absolute()

    def from_topics(self, kafka: Any) -> tuple[str, Path | None]:
        return "offsets", None

    def from_own(self, source: Any) -> tuple[str, Path | None]:
        return "own source", None

    def from_query(self, query: Any) -> tuple[str, Path | None]:
        return "query", None


class Deliveries:
    """The deliveries of some books."""

    def __init__(self, books: Books, project: Path) -> None:
        self.books = books
        self._doors = {
            name: source.connector.taken_by(_Door(project))
            for name, source in books.plan.pipeline.sources.items()
        }
        self.rejected = {name: RejectedFiles(books.layout, name) for name in self._doors}
        pulls = books.plan.pipeline.pulls.values()
        self._pulled = {
            name: re.compile(PAGE.format("|".join(one.name for one in pulls if one.into == name)))
            for name in {one.into for one in pulls}
        }

    def page(self, wanted: DeliveryFilter, limit: int, offset: int = 0) -> DeliveryPage:
        """Deliveries that match, newest first, with their verdicts."""
        self._check(wanted)
        cut = self.books.cut()
        found = list(islice(self._matching(wanted, cut), offset, offset + limit + 1))
        return DeliveryPage(with_verdicts(self.books, cut, found[:limit]), len(found) > limit)

    def overview(self) -> dict[str, Any]:
        """At a glance: what came and what was processed last, what waits, what was rejected."""
        cut = self.books.cut()
        newest = next(self._matching(DeliveryFilter(), cut), None)
        taken = heapq.merge(
            *(self._on_tape(name, DeliveryFilter(), cut) for name in self._doors),
            key=_moment, reverse=True,
        )  # fmt: skip
        booked = next((one for one in taken if one.state == "booked"), None)
        shown = with_verdicts(self.books, cut, [booked] if booked else [])
        waiting = [one for name in self._doors for one in self._waiting(name, cut)]
        return {
            "newest": newest.facts() if newest else None,
            "last_booked": shown[0].facts() if shown else None,
            "waiting": sum(one.state == "waiting" for one in waiting),
            "rejected": len(self.undecided()),
        }

    def undecided(self) -> list[Delivery]:
        """Rejected deliveries that nobody has retried, dismissed or mended, newest first."""
        cut = self.books.cut()
        held = [
            one for name in self._doors for one in self._waiting(name, cut)
            if one.state == "rejected"
        ]  # fmt: skip
        kept = [_of(one) for files in self.rejected.values() for one in files.undecided()]
        return sorted([*held, *kept], key=_moment, reverse=True)

    def last_arrivals(self) -> dict[str, datetime | None]:
        """When something last came from each source, whether or not it was taken."""
        cut = self.books.cut()
        newest = {
            name: next(self._matching(DeliveryFilter(source=name), cut), None)
            for name in self._doors
        }
        return {name: one.arrived_at if one else None for name, one in newest.items()}

    def find(self, said: str) -> tuple[Delivery, list[str]]:
        """The newest delivery of a name, or the one with an id; and ids of others of that name."""
        cut = self.books.cut()
        found = list(islice(self._meant(said, cut), MOST_OTHERS + 1))
        if not found:
            raise QuestionError(
                f"delivery '{said}' not found. 'tapeline deliveries' lists names and ids; with "
                "--name it searches for a part of a name."
            )
        (first,) = with_verdicts(self.books, cut, found[:1])
        return first, [one.id for one in found[1:] if one.id]

    def rejected_file(self, said: str) -> RejectedFile:
        """The rejected file that somebody wants to retry or dismiss, by its name or id."""
        one, _ = self.find(said)
        if one.state not in ("rejected", "retried", "dismissed"):
            newest = [file for files in self.rejected.values() for file in files.undecided()
                      if file.name == said]  # fmt: skip
            if newest:
                return newest[0]
            raise OperationError(f"'{said}' was not rejected: it is {one.state}.")
        if one.id is None:
            raise OperationError(
                f"'{said}' is still in the input folder: {one.problem}. Correct the file or its "
                "manifest there, or remove it. Intake takes it then, without a retry."
            )
        found = self.rejected[one.source].get(int(one.id.rpartition(":")[2]))
        assert found is not None, "it was found a moment ago"
        return found

    def retry(self, said: str, signed: Actor, mended: Path | None = None) -> RejectedFile:
        """Send a rejected file through intake again."""
        file = self.rejected_file(said)
        drop = self._doors[file.source][1]
        assert drop is not None, "only files are rejected"
        return retry(self.rejected[file.source], file.number, drop, signed, mended)

    def dismiss(self, said: str, signed: Actor) -> RejectedFile:
        """Leave a rejected file out for good."""
        file = self.rejected_file(said)
        return dismiss(self.rejected[file.source], file.number, signed)

    def _meant(self, said: str, cut: ReadPoint) -> Iterator[Delivery]:
        source, _, number = said.partition(":")
        if source in self._doors and number.isdecimal():
            yield from self._matching(DeliveryFilter(source=source, number=int(number)), cut)
        elif source in self._doors and number.removeprefix(REJECTED).isdecimal():
            kept = self.rejected[source].get(int(number.removeprefix(REJECTED)))
            yield from [_of(kept)] if kept else []
        for one in self._matching(DeliveryFilter(name=said), cut):
            if said in (one.name, one.title):
                yield one

    def _check(self, wanted: DeliveryFilter) -> None:
        if wanted.state is not None and wanted.state not in STATES:
            hint = did_you_mean(wanted.state, STATES)
            raise QuestionError(
                f"'{wanted.state}' is not a state. Use one of {', '.join(STATES)}.{hint}"
            )
        if wanted.source is not None and wanted.source not in self._doors:
            hint = did_you_mean(wanted.source, self._doors)
            raise QuestionError(f"source '{wanted.source}' not found.{hint}")

    def _matching(self, wanted: DeliveryFilter, cut: ReadPoint) -> Iterator[Delivery]:
        """What waits first, then everything else by its arrival."""
        names = [name for name in self._doors if wanted.source in (None, name)]
        waiting = [one for name in names for one in self._waiting(name, cut)]
        waiting.sort(key=_moment, reverse=True)
        streams: list[Iterable[Delivery]] = []
        if wanted.state in OF_TAPE:
            streams += [self._on_tape(name, wanted, cut) for name in names]
        if wanted.state in OF_REJECTED:
            streams += [map(_of, self.rejected[name].newest_first()) for name in names]
        yield from filter(wanted.holds, waiting)
        yield from filter(wanted.holds, heapq.merge(*streams, key=_moment, reverse=True))

    def _on_tape(self, name: str, wanted: DeliveryFilter, cut: ReadPoint) -> Iterator[Delivery]:
        position = cut.commit.positions.get(name)
        booked = position.last if position else 0
        tape = TapeOfSource(self.books.layout, name, self._doors[name][0], booked)
        return map(self._named, tape.newest_first(wanted))

    def _waiting(self, name: str, cut: ReadPoint) -> list[Delivery]:
        kind, drop = self._doors[name]
        newest = next(self._on_tape(name, DeliveryFilter(), cut), None)
        if drop is not None:
            home = self.books.layout.intake(name)
            files = waiting_files(name, drop, home, newest.number if newest else 0)
            return [*map(self._named, files), *self._not_pulled(name)]
        return self._lagging(name, cut) if kind == "offsets" else []

    def _not_pulled(self, name: str) -> list[Delivery]:
        """What an outside system has and a pull has not fetched, as far as the pull knows."""
        return [
            Delivery(name, "pull", one.pull, "waiting", records=one.lag_records)
            for one in read_pulls(self.books.layout).pulls
            if one.into == name and one.lag_records
        ]

    def _lagging(self, name: str, cut: ReadPoint) -> list[Delivery]:
        """Messages of each partition that are not on the tape, as the run last saw it."""
        status = read_status(self.books.layout.status)
        source = status.sources.get(name) if status else None
        if source is None:
            return []
        on_tape: dict[str, int] = {}
        for one in self._on_tape(name, DeliveryFilter(state="on the tape"), cut):
            on_tape[one.name] = on_tape.get(one.name, 0) + (one.records or 0)
        left = {
            part: lag.lag_records - on_tape.get(part, 0) for part, lag in source.partitions.items()
        }
        return [
            Delivery(name, "offsets", part, "waiting", records=count)
            for part, count in left.items()
            if count > 0
        ]

    def _named(self, one: Delivery) -> Delivery:
        """The same; a page that a pull handed over is a pull."""
        pulled = self._pulled.get(one.source)
        return replace(one, kind="pull") if pulled and pulled.fullmatch(one.name) else one


def _moment(one: Delivery) -> datetime:
    return one.arrived_at or LONG_AGO


def _of(file: RejectedFile) -> Delivery:
    """A rejected file as a delivery."""
    decided = file.decided
    state: State = "rejected"
    if decided is not None:
        state = "retried" if decided.act == "retried" else "dismissed"
    return Delivery(
        source=file.source,
        kind="file",
        name=file.name,
        state=state,
        id=file.id,
        arrived_at=file.at,
        bytes=file.size,
        problem=file.reason,
        decided=vars(decided) if decided else None,
        kept_as=str(file.path),
    )
