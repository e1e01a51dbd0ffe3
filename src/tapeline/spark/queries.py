"""Structured Streaming queries as sources: their columns, and running them."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tapeline.connect.query import ASAP, AVAILABLE_NOW, ONCE, Need, Query
from tapeline.connect.running_query import QueryBatch, QueryStart
from tapeline.declare.source import SomeIntakes
from tapeline.errors import OperationError
from tapeline.plan import Plan, resolve
from tapeline.spark.failures import words_of
from tapeline.spark.internals import dropped_rows, forget_batches_of, read_formats
from tapeline.spark.query_checks import frame_of, own_session, schema_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# What Spark's readers do not read again after a restart.
NOT_REPLAYED = {"socket"}
WAKE_SECONDS = 0.2


def needs_of(plan: Plan) -> list[Need]:
    """The connectors of Spark's own that the queries of a plan name."""
    needs = {need for query in _queries(plan).values() for need in query.needs}
    return [need for need in get_args(Need) if need in needs]


def with_query_schemas(session: SparkSession, plan: Plan) -> Plan:
    """A plan that knows the columns of its queries. Refuses a query that Spark would refuse."""
    sources = plan.pipeline.sources
    known = {
        name: replace(sources[name], connector=query.with_schema(schema_of(session, sources[name])))
        for name, query in _queries(plan).items()
        if query.schema is None
    }
    if not known:
        return plan
    return resolve(replace(plan.pipeline, sources={**sources, **known}))


def _queries(plan: Plan) -> dict[str, Query]:
    """The sources that are queries."""
    taken = {
        name: source.connector.taken_by(_OnlyQueries())
        for name, source in plan.pipeline.sources.items()
    }
    return {name: query for name, query in taken.items() if query is not None}


class _OnlyQueries(SomeIntakes):
    """The query of a source, if it is one."""

    def from_query(self, query: Query) -> Query:
        return query


class SparkQueries:
    """Starts queries beside a flow. Each has one session for all its starts."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._own: dict[int, SparkSession] = {}
        self._replayed: dict[int, bool] = {}

    def start(self, what: QueryStart) -> SparkQuery:
        return SparkQuery(self._frame(what.query), what)

    def replays(self, query: Query) -> bool:
        if id(query) not in self._replayed:
            self._replayed[id(query)] = not (read_formats(self._frame(query)) & NOT_REPLAYED)
        return self._replayed[id(query)]

    def _frame(self, query: Query) -> DataFrame:
        try:
            if id(query) not in self._own:
                self._own[id(query)] = own_session(self._session, query)
            return frame_of(self._own[id(query)], query)
        except Exception as error:
            raise _failed(query, error) from error


class SparkQuery:
    """A query at work. Spark's thread brings a batch and waits until it is done."""

    def __init__(self, frame: DataFrame, what: QueryStart) -> None:
        self._what = what
        self._changed = threading.Condition()
        self._offered: QueryBatch | None = None
        self._stopping = False
        self._error: Exception | None = None  # of the batch at work
        self._query: StreamingQuery | None = None
        writer = (
            frame.writeStream.queryName(what.name)
            .outputMode(what.query.mode)
            .option("checkpointLocation", str(what.checkpoint))
            .foreachBatch(self._offer)
            .trigger(**_trigger(what))
        )
        try:
            started = writer.start()
        except Exception as error:
            raise _failed(self._what.query, error) from error
        with self._changed:
            self._query = started
            self._changed.notify_all()
        self.id = str(started.id)

    def next(self, seconds: float) -> QueryBatch | None:
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._offered is None and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            if self._offered is not None:
                return self._offered
        error = self._error or self._started.exception()
        if error is not None:
            raise _failed(self._what.query, error) from error
        return None

    def done(self) -> None:
        with self._changed:
            self._offered = None
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        failed = self._error or self._started.exception()  # the next call of `next` says so
        return not self._started.isActive and self._offered is None and failed is None

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        with suppress(Exception):  # what matters is on the tape
            self._started.stop()
        forget_batches_of(self._offer)

    @property
    def _started(self) -> StreamingQuery:
        assert self._query is not None
        return self._query

    def _offer(self, frame: DataFrame, number: int) -> None:
        """Called by Spark with each batch. When it returns, Spark commits the batch."""
        try:
            rows: pa.Table = frame.toArrow()
        except Exception as error:
            self._error = error
            raise
        with self._changed:
            self._wait(lambda: self._query is not None)
            dropped = dropped_rows(self._started)
            self._offered = QueryBatch(str(self._started.id), number, rows, dropped)
            self._changed.notify_all()
            self._wait(lambda: self._offered is None)

    def _wait(self, until: Any) -> None:
        while not until():
            if self._stopping:
                self._offered = None
                raise RuntimeError("the query was stopped before its batch was on the tape")
            self._changed.wait(WAKE_SECONDS)


def _failed(query: Query, error: Exception) -> OperationError:
    return OperationError(
        f"QUERY_FAILED: {query.name}(): {_words(error)}. Tapeline starts the query again; it "
        "continues after what is on the tape."
    )


def _words(error: Exception) -> str:
    """What made a query fail, without Spark's words around it."""
    text = words_of(error).split(" === Streaming Query ===")[0]
    text = re.sub(r"^.*terminated with exception: ", "", text)
    return re.sub(r" SQLSTATE: \w+$", "", text).rstrip(".")


def _trigger(what: QueryStart) -> dict[str, Any]:
    said = what.query.trigger
    if said == ONCE:
        return {"once": True}
    if what.to_the_end or said == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": "0 seconds" if said == ASAP else said}
