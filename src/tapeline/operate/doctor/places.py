"""Checks of the folders and topics that data comes from and goes to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from tapeline.books import Books
from tapeline.books.layout import Layout
from tapeline.books.query_position import dropped_words, positions
from tapeline.books.tape_batches import deliveries_of
from tapeline.connect import Kafka
from tapeline.connect.kafka_cluster import find_partitions
from tapeline.declare.sink import Sink
from tapeline.declare.source import Source
from tapeline.errors import TapelineError
from tapeline.intake.checkpoint import Checkpoint
from tapeline.operate.doctor.finding import Finding
from tapeline.settings import Settings
from tapeline.words import counted

LATE = (
    "Lengthen the watermark. Or leave windows to a summary: it corrects its numbers when late "
    "records come."
)


def places(books: Books, settings: Settings) -> Iterator[Finding]:
    home = books.layout.home
    place = next(p for p in (home, *home.parents) if p.exists())
    if os.access(place, os.W_OK | os.X_OK):
        yield Finding("books", "ok", f"{home} is writable")
    else:
        yield Finding("books", "error", f"{place} is not writable",
                      "Give this user write access, or choose another root.")  # fmt: skip
    yield from _privacy(home)
    for name, sink in books.plan.pipeline.sinks.items():
        yield from _destination(f"destination of {name}", sink, settings)
    for name, source in books.plan.pipeline.sources.items():
        yield source.connector.taken_by(_Sources(name, settings, books.layout))


@dataclass(frozen=True)
class _Sources:
    """How each kind of source is checked: an `Intakes` that takes nothing."""

    name: str
    settings: Settings
    layout: Layout

    @property
    def what(self) -> str:
        return f"source {self.name}"

    def from_folder(self, files: Any) -> Finding:
        drop = self.settings.within(files.path)
        if not drop.exists():
            return Finding(self.what, "warning", f"{drop} does not exist yet",
                           "The pipeline creates it when it starts.")  # fmt: skip
        if os.access(drop, os.R_OK | os.W_OK | os.X_OK):
            return Finding(self.what, "ok", f"{drop} is readable and writable")
        return Finding(self.what, "error", f"{drop} is not readable and writable",
                       "Give this user read and write access.")  # fmt: skip

    def from_topics(self, kafka: Any) -> Finding:
        return _topics(self.what, kafka, self.settings)

    def from_query(self, query: Any) -> Finding:
        found = list(positions(deliveries_of(self.layout, self.name)))
        last = found[-1] if found else None
        checkpoint = Checkpoint(self.name, self.layout.query(self.name))
        state = checkpoint.state(last)
        if state not in ("new", "ok"):
            return Finding(self.what, "error", *checkpoint.words(state, last))
        at = f"batch {last.batch} is on the tape" if last else "nothing is on the tape yet"
        words = f"{query.path}: {at}"
        dropped = sum(one.dropped for one in found)
        if dropped:
            return Finding(self.what, "warning", f"{words}; {dropped_words(dropped)}", LATE)
        return Finding(self.what, "ok", words)

    def from_own(self, source: Source) -> Finding:
        return Finding(self.what, "ok", f"{source.path}: a source of your own, not checked here")


def _privacy(home: Path) -> Iterator[Finding]:
    """Whether other users of this machine can look into the books, or hold their locks."""
    if not home.exists():
        return
    state = home.stat()
    # Who cannot pass a folder above cannot read what is below, whatever its own mode says. Users of
    # the group may pass a folder of another group as others do.
    above = [folder.stat() for folder in home.parents]
    group = all(one.st_mode & (0o010 if one.st_gid == state.st_gid else 0o011) for one in above)
    others = all(one.st_mode & 0o001 for one in above)
    who = [name for name, passes, bits in (("its group", group, 0o050),
                                           ("all other users", others, 0o005))
           if passes and state.st_mode & bits]  # fmt: skip
    if who:
        yield Finding("privacy", "warning", f"{' and '.join(who)} can read {home}",
                      f"Unless you want that, run: chmod 700 {quote(str(home))}")  # fmt: skip
    else:
        yield Finding("privacy", "ok", "only this user can read the books")


def _destination(what: str, sink: Sink, settings: Settings) -> Iterator[Finding]:
    """What a destination says of itself, if it does."""
    try:
        said = sink.check(settings)
    except TapelineError as error:
        yield Finding(what, "error", str(error), "See the message.")
        return
    if said:
        yield Finding(what, "ok", said)


def _topics(what: str, kafka: Kafka, settings: Settings) -> Finding:
    try:
        found = find_partitions(kafka, settings.kafka)
    except TapelineError as error:
        return Finding(what, "error", str(error), "See the message.")
    return Finding(what, "ok", f"{kafka.path}: {counted(len(found), 'partition')}")
