"""Collects the status of a run and writes it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tapeline.books.catchup import CatchUp
from tapeline.books.status import (
    IncidentStatus,
    Lag,
    Pause,
    QueryStatus,
    SinkStatus,
    SourceStatus,
    Status,
    read_document,
    write_status,
)
from tapeline.books.stuck import Stuck, after_batch

if TYPE_CHECKING:
    from tapeline.errors import TapelineError

RECENT_BATCHES = 50
WRITE_EVERY_SECONDS = 0.2


class PartitionLag(Protocol):
    """Messages of a partition that are not in the books, and the age of the oldest."""

    @property
    def records(self) -> int: ...

    @property
    def seconds(self) -> float: ...


class StatusFile:
    """Collects and writes the status; reading it never needs the process that wrote it."""

    def __init__(self, path: Path, started: datetime) -> None:
        self._path = path
        self._started = started
        before = read_document(path, Status) or Status()
        self._starts = before.starts + 1
        # Whoever starts holds the lock: one that still says it runs did not come to its end.
        self._kills = before.kills + before.running
        self._lock = threading.Lock()
        self._written: datetime | None = None
        self._recent: deque[tuple[datetime, int, float]] = deque(maxlen=RECENT_BATCHES)
        self.overruns = 0
        # A tick that was at work when its process was killed is over.
        self.tick = before.tick and before.tick.model_copy(update={"began_at": None})
        self.last = before  # what was written last
        self.retries = 0
        self.paused: Pause | None = None
        self.dropped: dict[str, tuple[int, int]] = {}
        self.queries: dict[str, QueryStatus] = {}
        # by source and partition of topics: the lag of the books
        self.partitions: Mapping[str, Mapping[str, PartitionLag]] = {}
        self._catching_up: dict[tuple[str, str], CatchUp] = {}
        self.sinks: dict[str, SinkStatus] = {}
        self.problems: dict[str, str] = {}
        self.incidents: list[IncidentStatus] = []
        self.stuck: Stuck | None = before.stuck

    def note(self, published: Any) -> None:
        """A batch was published."""
        self._recent.append((published.at, published.records, published.seconds))
        self.stuck = None

    def write(self, flow: Any, failure: TapelineError | None, running: bool, now: datetime) -> None:
        """Replace the file, at most a few times a second."""
        with self._lock:
            recent = self._written and (now - self._written).total_seconds() < WRITE_EVERY_SECONDS
            if recent and running and failure is None and self.stuck is None:
                return
            self._written = now
            self.last = self._status(flow, failure, running, now)
            write_status(self._path, self.last)

    def _status(
        self, flow: Any, failure: TapelineError | None, running: bool, now: datetime
    ) -> Status:
        sources = {name: self._source(flow, name, now) for name in flow.tapes}
        batches = list(self._recent)
        span = (batches[-1][0] - batches[0][0]).total_seconds() if len(batches) > 1 else 0.0
        records = sum(records for _, records, _ in batches[1:])
        seconds = sorted(seconds for _, _, seconds in batches)
        return Status(
            pipeline=flow.plan.name,
            pid=os.getpid(),
            running=running,
            paused=self.paused,
            at=now.isoformat(),
            batch=flow.published_batch,
            published_at=flow.published_at and flow.published_at.isoformat(),
            positions=dict(flow.backlog.position),
            started_at=self._started.isoformat(),
            starts=self._starts,
            kills=self._kills,
            retries=self.retries,
            lag_records=sum(one.lag_records for one in sources.values()) + flow.acts_waiting,
            lag_seconds=max((one.lag_seconds for one in sources.values()), default=0.0),
            sources=sources,
            sinks=self.sinks,
            drop_files=sum(files for files, _ in self.dropped.values()),
            records_per_second=round(records / span, 1) if span else None,
            batch_milliseconds=round(seconds[len(seconds) // 2] * 1000) if seconds else None,
            batch_limit_records=max(flow.room.records, flow.backlog.largest),
            overruns=self.overruns,
            **({"tick": self.tick} if self.tick else {}),
            problems=dict(self.problems),
            incidents=self.incidents,
            failure=str(failure) if failure else None,
            stuck=after_batch(self.stuck, flow.published_batch),
        )

    def _source(self, flow: Any, name: str, now: datetime) -> SourceStatus:
        """The lag of one source, from its drop folder to the books."""
        records, oldest = flow.backlog.of(name)
        files, size = self.dropped.get(name, (0, 0))
        seconds = (now - oldest).total_seconds() if oldest else 0.0
        partitions = self.partitions.get(name, {})
        if partitions:
            records = sum(one.records for one in partitions.values())
            seconds = max(seconds, *(one.seconds for one in partitions.values()))
        return SourceStatus(
            position=flow.backlog.position[name],
            lag_records=records,
            lag_seconds=round(seconds, 3),
            catch_up_seconds=self._catch_up(name, "", records, now),
            partitions={
                part: Lag(
                    lag_records=one.records,
                    lag_seconds=one.seconds,
                    catch_up_seconds=self._catch_up(name, part, one.records, now),
                )
                for part, one in partitions.items()
            },
            drop_files=files,
            drop_bytes=size,
            **({"query": self.queries[name]} if name in self.queries else {}),
            problem=self.problems.get(name),
        )

    def _catch_up(self, source: str, partition: str, records: int, now: datetime) -> float | None:
        """When a lag will be gone at its recent pace; None while it does not shrink."""
        known = self._catching_up.setdefault((source, partition), CatchUp())
        return known.seconds(records, now)
