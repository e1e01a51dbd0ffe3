"""A run as Spark shows it: a streaming query with batches, rates and sources.

Its events go to the session's listener bus, so the Streaming tab of Spark's UI and every
StreamingQueryListener see a pipeline as they see Spark's own queries.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tapeline.flow.progress import Published, SourceProgress
from tapeline.spark.internals import ListenerBus, OtherSparkError, unlike_this_version

KEPT = 100  # batches, as many as Spark keeps of a query
# What Spark calls the parts of a batch.
PARTS = {
    "read": "getBatch",
    "compute": "addBatch",
    "decide": "walCommit",
    "finish": "commitOffsets",
}


class QueryReport:
    """Tells Spark what a run does. Whatever goes wrong with that never stops the run."""

    def __init__(
        self, session: SparkSession | None, name: str, home: Path, say: Callable[[str], None]
    ) -> None:
        """Without a session batches are remembered, and Spark is not told."""
        self.name = name
        # The same books are the same query, whichever process runs it.
        self.id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"tapeline:{home}"))
        self.run_id = str(uuid.uuid4())
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._last = datetime.now(UTC)
        self._say = say
        self._bus: ListenerBus | None = None
        if session is not None:
            self._attempt(lambda: self._open(session))

    def _open(self, session: SparkSession) -> None:
        self._bus = ListenerBus(session)

    def started(self) -> None:
        at = _timestamp(datetime.now(UTC))
        self._post(lambda bus: bus.started((self.id, self.run_id), self.name, at))

    def published(self, published: Published) -> None:
        progress = self._progress(published)
        self.recent.append(progress)
        self._post(lambda bus: bus.progress(json.dumps(progress)))

    def ended(self, error: BaseException | None) -> None:
        words = str(error) if error is not None else None
        self._post(lambda bus: bus.terminated((self.id, self.run_id), words))

    def _post(self, event: Callable[[ListenerBus], None]) -> None:
        bus = self._bus
        if bus is not None:
            self._attempt(lambda: event(bus))

    def _attempt(self, post: Callable[[], None]) -> None:
        """Another version of Spark may have other classes: then it is not told."""
        try:
            with unlike_this_version():
                post()
        except OtherSparkError as error:
            self._bus = None
            self._say(f"Spark is not told of batches: {error}")

    def _progress(self, one: Published) -> dict[str, Any]:
        """A batch by the names that Spark has for its own."""
        since, self._last = max((one.at - self._last).total_seconds(), 0.001), one.at
        parts = {PARTS[part]: took for part, took in one.milliseconds.items() if part in PARTS}
        total = round(one.seconds * 1000)
        rates = Rates(since, max(one.seconds, 0.001))
        return {
            "id": self.id,
            "runId": self.run_id,
            "name": self.name,
            "timestamp": _timestamp(one.at),
            "batchId": one.batch,
            "batchDuration": total,
            "numInputRows": one.records,
            **rates.of(one.records),
            "durationMs": {**parts, "triggerExecution": total},
            "eventTime": {},
            "stateOperators": [],
            "sources": [_source(source, rates) for source in one.sources],
            "sink": {"description": f"Tapeline books of {self.name}", "numOutputRows": -1},
            "observedMetrics": {},
        }


class Rates:
    """Records per second: as they arrive, and as they are processed."""

    def __init__(self, since: float, seconds: float) -> None:
        self._since = since
        self._seconds = seconds

    def of(self, records: int) -> dict[str, float]:
        return {
            "inputRowsPerSecond": records / self._since,
            "processedRowsPerSecond": records / self._seconds,
        }


def _source(source: SourceProgress, rates: Rates) -> dict[str, Any]:
    """A source; its offsets are batches of its tape."""
    return {
        "description": f"Tapeline tape of {source.name}",
        "startOffset": str(source.first - 1),
        "endOffset": str(source.last),
        "latestOffset": str(source.latest),
        "numInputRows": source.records,
        **rates.of(source.records),
        "metrics": {},
    }


def _timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
