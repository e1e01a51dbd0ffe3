"""The streaming queries of a run, one per source: started, started again, rolled, stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.streaming.query import StreamingQuery

from tapeline.books.tape import TapeBatch
from tapeline.errors import OperationError
from tapeline.spark.ingest import Ingest
from tapeline.supervisor import Supervisor

Then = Callable[[TapeBatch], None]


class Queries:
    """Spark's queries, from every source's accepted pieces to its tape."""

    def __init__(
        self,
        ingests: Mapping[str, Ingest],
        supervisor: Supervisor,
        roll_every_batches: int,
        then: Callable[[str], Then],
    ) -> None:
        """`then` says by source what follows a batch that is on its tape."""
        self._ingests = ingests
        self._supervisor = supervisor
        self._roll_every_batches = roll_every_batches
        self._then = then
        self._running: dict[str, StreamingQuery] = {}
        self._ended: dict[str, StreamingQuery] = {}

    def start(self) -> None:
        for name in self._ingests:
            self._start(name)

    def stop(self) -> None:
        for query in self._running.values():
            query.stop()

    def refuse_ended(self) -> None:
        """For a run that is to end anyway: a query that has ended is an error."""
        for query in self._running.values():
            if not query.isActive:
                raise _end_of(query)

    def look_after(self) -> None:
        """Start again what has ended, and give a new checkpoint to what has made enough batches."""
        for name, query in list(self._running.items()):
            if not query.isActive:
                self._restart(name, query)
            elif self._ingests[name].batches > self._roll_every_batches:
                query.processAllAvailable()
                query.stop()
                self._ingests[name].roll()
                self._start(name)

    def _start(self, name: str) -> None:
        self._running[name] = self._ingests[name].start(self._then(name))

    def _restart(self, name: str, query: StreamingQuery) -> None:
        """An ingest that stopped starts again, later and later; at last the run ends."""
        if self._ended.get(name) is not query:  # its end is counted once
            self._ended[name] = query
            error = _end_of(query)
            if self._supervisor.failed(part_of(name), error).given_up:
                raise error
        if self._supervisor.may_try(part_of(name)):
            try:
                self._start(name)
            except Exception as error:
                if self._supervisor.failed(part_of(name), error).given_up:
                    raise


def part_of(source: str) -> str:
    """What the supervisor calls a source's query."""
    return f"ingest of {source}"


def _end_of(query: StreamingQuery) -> OperationError:
    """Why a query that should run for ever has ended."""
    failure = query.exception()
    text = str(failure).split("JVM stacktrace")[0].strip() if failure else "unknown reason"
    return OperationError(f"ingest stopped: {text}")
