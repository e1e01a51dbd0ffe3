"""What a running flow says of itself, as a small file that other processes read."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapeline.watch.catchup import CatchUp

if TYPE_CHECKING:
    from tapeline.errors import TapelineError

RECENT_BATCHES = 50
WRITE_EVERY_SECONDS = 0.2


class StatusFile:
    """Collects and writes the status; reading it never needs the process that wrote it."""

    def __init__(self, path: Path, started: datetime) -> None:
        self._path = path
        self._started = started
        before = _read(path) or {}
        self._starts = before.get("starts", 0) + 1
        # Whoever starts holds the lock: one that still says it runs did not come to its end.
        self._kills = before.get("kills", 0) + bool(before.get("running"))
        self._lock = threading.Lock()
        self._written: datetime | None = None
        self._recent: deque[tuple[datetime, int, float]] = deque(maxlen=RECENT_BATCHES)
        self.overruns = 0
        self.retries = 0
        self.paused: dict[str, Any] | None = None
        # by source: records that are accepted and not on the tape yet, and since when
        self.ahead: dict[str, tuple[int, datetime | None]] = {}
        self.dropped: dict[str, tuple[int, int]] = {}
        # by source and partition of topics: how far the books are behind
        self.partitions: dict[str, dict[str, Any]] = {}
        self._catching_up: dict[tuple[str, str], CatchUp] = {}
        self.sinks: dict[str, dict[str, Any]] = {}
        self.problems: dict[str, str] = {}
        self.incidents: list[dict[str, Any]] = []

    def note(self, published: Any) -> None:
        """A batch was published."""
        self._recent.append((published.at, published.records, published.seconds))

    def write(self, flow: Any, failure: TapelineError | None, running: bool, now: datetime) -> None:
        """Replace the file, at most a few times a second."""
        with self._lock:
            recent = self._written and (now - self._written).total_seconds() < WRITE_EVERY_SECONDS
            if recent and running and failure is None:
                return
            self._written = now
            partial = self._path.with_suffix(f".{os.getpid()}")
            # On a full disk the pipeline waits for room; what it says of itself must not end it.
            with suppress(OSError):
                partial.write_text(json.dumps(self._facts(flow, failure, running, now)))
                partial.replace(self._path)

    def _facts(
        self, flow: Any, failure: TapelineError | None, running: bool, now: datetime
    ) -> dict[str, Any]:
        sources = {name: self._source(flow, name, now) for name in flow.tapes}
        batches = list(self._recent)
        span = (batches[-1][0] - batches[0][0]).total_seconds() if len(batches) > 1 else 0.0
        records = sum(records for _, records, _ in batches[1:])
        seconds = sorted(seconds for _, _, seconds in batches)
        return {
            "pipeline": flow.plan.name,
            "pid": os.getpid(),
            "running": running,
            "paused": self.paused,
            "at": now.isoformat(),
            "batch": flow.published_batch,
            "published_at": flow.published_at and flow.published_at.isoformat(),
            "positions": dict(flow.backlog.position),
            "started_at": self._started.isoformat(),
            "starts": self._starts,
            "kills": self._kills,
            "retries": self.retries,
            "lag_records": sum(s["lag_records"] for s in sources.values()) + flow.acts_waiting,
            "lag_seconds": max((s["lag_seconds"] for s in sources.values()), default=0.0),
            "sources": sources,
            "sinks": self.sinks,
            "drop_files": sum(files for files, _ in self.dropped.values()),
            "records_per_second": round(records / span, 1) if span else None,
            "batch_milliseconds": round(seconds[len(seconds) // 2] * 1000) if seconds else None,
            "batch_limit_records": flow.room.records,
            "overruns": self.overruns,
            "problems": dict(self.problems),
            "incidents": self.incidents,
            "failure": str(failure) if failure else None,
        }

    def _source(self, flow: Any, name: str, now: datetime) -> dict[str, Any]:
        """How far behind one source is, from its drop folder to the books."""
        ahead, since = self.ahead.get(name, (0, None))
        waiting, oldest = flow.backlog.of(name)
        oldest = oldest or since
        files, size = self.dropped.get(name, (0, 0))
        records, seconds = waiting + ahead, (now - oldest).total_seconds() if oldest else 0.0
        partitions = self.partitions.get(name, {})
        if partitions:
            records = sum(one.records for one in partitions.values())
            seconds = max(seconds, *(one.seconds for one in partitions.values()))
        return {
            "position": flow.backlog.position[name],
            "lag_records": records,
            "lag_seconds": round(seconds, 3),
            "catch_up_seconds": self._catch_up(name, "", records, now),
            "partitions": {
                part: {
                    "lag_records": one.records,
                    "lag_seconds": one.seconds,
                    "catch_up_seconds": self._catch_up(name, part, one.records, now),
                }
                for part, one in partitions.items()
            },
            "drop_files": files,
            "drop_bytes": size,
            "problem": self.problems.get(name),
        }

    def _catch_up(self, source: str, partition: str, records: int, now: datetime) -> float | None:
        """When a lag will be gone at its recent pace; None while it does not shrink."""
        known = self._catching_up.setdefault((source, partition), CatchUp())
        return known.seconds(records, now)


def read_status(path: Path) -> dict[str, Any] | None:
    """The last status that was written, corrected for a process that is gone."""
    facts = _read(path)
    if facts is not None:
        facts["running"] = facts["running"] and _alive(facts["pid"])
    return facts


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return facts


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # One that nobody has waited for is dead all the same.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True  # this system does not say
