"""What a running process says of itself, as a small file that other processes read."""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from tapeline.books.stuck import Stuck
from tapeline.store.document import Document, Number, Text
from tapeline.store.files import read_bytes, replace_file
from tapeline.store.lock import is_alive

if TYPE_CHECKING:
    from tapeline.supervisor import Incident

# A trend compares the later half of recent ticks with the earlier one, each of at least so many.
TREND_TICKS, TREND_SHARE, RECENT_TICKS = 2, 0.1, 12


class Pause(Document):
    """Who paused the flow, when and why."""

    at: Text | None = None
    who: Text = ""
    note: Text = ""


class Lag(Document):
    """The lag of the books: records, the age of the oldest, and the time to catch up."""

    lag_records: int = 0
    lag_seconds: Number = 0.0
    catch_up_seconds: Number | None = None  # None while the lag does not shrink


class QueryStatus(Document):
    """How far a Structured Streaming query is on the tape.

    Spark counts what a watermark drops after partial aggregation: several rows may count as one.
    """

    query: Text = ""
    batch: int = 0
    dropped_by_watermark: int = 0


class SourceStatus(Document):
    """The lag of one source, from its drop folder to the books."""

    position: int = 0
    lag_records: int = 0
    lag_seconds: Number = 0.0
    catch_up_seconds: Number | None = None
    partitions: dict[Text, Lag] = {}  # of a topic
    drop_files: int = 0
    drop_bytes: int = 0
    query: QueryStatus | None = None
    problem: Text | None = None


class SinkStatus(Document):
    """How far a sink has delivered."""

    to: Text = ""
    delivered_batch: int | None = None
    lag_batches: int | None = None
    messages: int = 0
    problem: Text | None = None


class IncidentStatus(Document):
    """A part that is failing."""

    part: Text = ""
    since: Text = ""
    attempts: int = 1
    error: Text = ""
    given_up: bool = False

    @classmethod
    def of(cls, incident: Incident) -> Self:
        return cls(**incident.facts())


class Tick(Document):
    """How much of its interval a run by ticks needs: the last tick, and those before it."""

    interval_seconds: Number = 0.0
    used_seconds: Number = 0.0
    share: Number = 0.0
    recent: list[Number] = []  # shares, the oldest first
    began_at: Text | None = None  # of a tick that is at work

    @classmethod
    def begun(cls, interval_seconds: float, before: Tick | None, now: datetime) -> Tick:
        """A tick that begins, with the shares of those before it."""
        if before is None or before.interval_seconds != interval_seconds:
            before = cls(interval_seconds=interval_seconds)
        return before.model_copy(update={"began_at": now.isoformat()})

    def ended(self, now: datetime) -> Tick:
        """The same tick when its work has ended."""
        began = datetime.fromisoformat(self.began_at or now.isoformat())
        used = (now - began).total_seconds()
        share = round(used / self.interval_seconds, 4)
        return Tick(
            interval_seconds=self.interval_seconds,
            used_seconds=round(used, 3),
            share=share,
            recent=[*self.recent, share][-RECENT_TICKS:],
            began_at=None,
        )

    def used(self, now: datetime) -> float:
        """Seconds that the last tick needed, or the one at work so far if that is more."""
        if self.began_at is None:
            return self.used_seconds
        so_far = (now - datetime.fromisoformat(self.began_at)).total_seconds()
        return max(self.used_seconds, so_far)

    @property
    def trend(self) -> str:
        """Whether recent ticks need more than those before them; "" before there are enough."""
        half = len(self.recent) // 2
        if half < TREND_TICKS:
            return ""
        earlier, later = (
            sum(some) / len(some) for some in (self.recent[:half], self.recent[half:])
        )
        if abs(later - earlier) <= TREND_SHARE * max(earlier, later):
            return "steady"
        return "rising" if later > earlier else "falling"


class Status(Document):
    """What a run says of itself."""

    pipeline: Text = ""
    pid: int | None = None
    running: bool = False
    paused: Pause | None = None
    at: Text | None = None
    batch: int = 0
    published_at: Text | None = None
    positions: dict[Text, int] = {}  # by source: the last tape batch that is in the books
    started_at: Text | None = None
    starts: int = 0
    kills: int = 0
    retries: int = 0
    lag_records: int = 0
    lag_seconds: Number = 0.0
    sources: dict[Text, SourceStatus] = {}
    sinks: dict[Text, SinkStatus] = {}
    drop_files: int = 0
    records_per_second: Number | None = None
    batch_milliseconds: int | None = None
    batch_limit_records: int | None = None
    overruns: int = 0
    tick: Tick | None = None
    problems: dict[Text, Text] = {}
    incidents: list[IncidentStatus] = []
    failure: Text | None = None
    stuck: Stuck | None = None


class OfProcess(Protocol):
    """A status names the process that wrote it."""

    @property
    def pid(self) -> int | None: ...

    @property
    def running(self) -> bool: ...


S = TypeVar("S", bound=Document)


def read_status(path: Path) -> Status | None:
    """The last status that was written, corrected for a process that is gone."""
    found = read_document(path, Status)
    return found and found.model_copy(update={"running": is_running(found)})


def write_status(path: Path, status: Document) -> None:
    """Replace a status file. On a full disk the process goes on without: it is disposable."""
    with suppress(OSError):
        replace_file(path, json.dumps(status.as_dict()).encode(), lasting=False)


def read_document(path: Path, kind: type[S]) -> S | None:
    """A status file as it was written; None if there is none, or none that can be read."""
    try:
        return kind.from_json(read_bytes(path))
    except (OSError, ValueError):
        return None


def is_running(status: OfProcess) -> bool:
    """Whether the process that wrote a status says that it runs, and is there."""
    return status.running and status.pid is not None and is_alive(status.pid)
