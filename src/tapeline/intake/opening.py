"""Opens the intake of each source. A connector says which kind of intake takes from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tapeline.books import Layout
from tapeline.books.quarantine import user
from tapeline.declare.source import Source
from tapeline.flow.flow import Flow
from tapeline.formats.limits import IntakeLimits
from tapeline.intake.checkpoint import Checkpoint
from tapeline.intake.files import FileIntake, FileRules
from tapeline.intake.kafka import TopicIntake, TopicOwner
from tapeline.intake.own import OwnIntake
from tapeline.intake.query import QueryIntake
from tapeline.intake.source_intake import SourceIntake
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.store.files import make_shared_folder, sync

if TYPE_CHECKING:
    from tapeline.connect.files import Files
    from tapeline.connect.kafka import Kafka
    from tapeline.connect.query import Query
    from tapeline.connect.running_query import Queries


class Opening:
    """Opens intakes for a flow's tapes."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        flow: Flow,
        clock: Callable[[], datetime],
        queries: Queries,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._flow = flow
        self._clock = clock
        self._queries = queries
        self._layout = Layout(settings.home(plan.name))
        said = settings.intake
        self._limits = IntakeLimits(
            files_per_pass=said.files_per_pass,
            records_per_piece=said.records_per_piece,
            bytes_per_piece=said.bytes_per_piece,
            bytes_per_tape_batch=min(
                settings.flow.bytes_per_tape_batch, settings.flow.bytes_per_batch
            ),
            record_bytes=said.record_bytes,
            file_bytes=said.file_bytes,
            file_rows=said.file_rows,
            expansion_ratio=said.expansion_ratio,
            decoded_bytes=said.decoded_bytes,
            settle_seconds=said.settle_seconds,
            room=flow.room,
        )

    def open(self, name: str) -> SourceIntake:
        """The intake of one source, ready to take."""
        self._take_over(name)
        intake: SourceIntake = self._plan.pipeline.sources[name].connector.taken_by(
            SourceOpening(self, name)
        )
        return intake

    def _take_over(self, name: str) -> None:
        """Books of earlier versions: pieces wait in accepted/, where a Spark query took them."""
        home = self._layout.intake(name)
        former, decided = home / "accepted", home / "work" / "decided"
        if former.is_dir():
            for path in sorted(decided.glob("*.parquet")) if decided.is_dir() else []:
                path.replace(former / path.name)
            sync(former)
            self._flow.tapes[name].adopt(self._limits.tape_batch)
            shutil.rmtree(former)
            shutil.rmtree(home / "work")
        shutil.rmtree(self._layout.checkpoint(name), ignore_errors=True)

    def folder(self, name: str, files: Files) -> FileIntake:
        drop: Path = self._settings.within(files.path)
        make_shared_folder(drop)
        keep = self._settings.intake.keep
        rules = FileRules(files.format, keep, self._layout.schemas, files.meta, files.members)
        intake = FileIntake(drop, self._flow.tapes[name], rules, self._limits, self._clock)
        intake.recover()
        return intake

    def topics(self, name: str, kafka: Kafka) -> TopicIntake:
        owner = TopicOwner(self._plan.name, name, self._flow.operator, user())
        tape = self._flow.tapes[name]
        settings = self._settings.kafka
        intake = TopicIntake(kafka, tape, settings, self._limits, self._clock, owner)
        intake.recover(self._flow.backlog.booked(name))
        return intake

    def query(self, name: str, query: Query) -> QueryIntake:
        checkpoint = Checkpoint(name, self._layout.query(name))
        tape, queries = self._flow.tapes[name], self._queries
        intake = QueryIntake(query, tape, queries, checkpoint, self._limits, self._clock)
        intake.start_over = self._settings.intake.lost_checkpoint == "start_over"
        return intake

    def own(self, name: str, source: Source) -> OwnIntake:
        intake = OwnIntake(source, self._flow.tapes[name], self._limits, self._clock)
        intake.recover()
        return intake


class SourceOpening:
    """What a connector is offered: the kinds of intake there are, for its source."""

    def __init__(self, opening: Opening, name: str) -> None:
        self._opening = opening
        self._name = name

    def from_folder(self, files: Files) -> SourceIntake:
        return self._opening.folder(self._name, files)

    def from_topics(self, kafka: Kafka) -> SourceIntake:
        return self._opening.topics(self._name, kafka)

    def from_query(self, query: Query) -> SourceIntake:
        return self._opening.query(self._name, query)

    def from_own(self, source: Source) -> SourceIntake:
        return self._opening.own(self._name, source)
