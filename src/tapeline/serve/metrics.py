"""What a monitoring system scrapes, in Prometheus' own format."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from fastapi import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tapeline.books import Books
from tapeline.serve.feed import Feed
from tapeline.watch.pulls import read_pulls
from tapeline.watch.status import read_status


class _Books:
    """The metrics of a pipeline's books, read when they are asked for."""

    def __init__(self, books: Books, feed: Feed) -> None:
        self._books = books
        self._feed = feed

    def collect(self) -> Iterator[Metric]:
        cut = self._books.cut()
        status: dict[str, Any] = read_status(self._books.layout.status) or {}
        yield _gauge("tapeline_batch", "The last published batch.", cut.batch)
        at = cut.at.timestamp() if cut.at else 0
        yield _gauge("tapeline_published_timestamp_seconds", "When it was published.", at)
        yield _gauge("tapeline_running", "1 while a flow runs.", int(status.get("running", False)))
        resting = int(status.get("paused") is not None)
        yield _gauge("tapeline_paused", "1 while somebody has paused the flow.", resting)
        milliseconds = status.get("batch_milliseconds") or 0
        yield _gauge("tapeline_batch_seconds", "Median of recent batches.", milliseconds / 1000)
        rate = status.get("records_per_second") or 0
        yield _gauge("tapeline_records_per_second", "Of recent batches.", rate)
        yield _gauge("tapeline_overruns", "Ticks that were missed.", status.get("overruns", 0))
        starts = status.get("starts", 0)
        yield _gauge("tapeline_starts", "How often the pipeline was started.", starts)
        kills = status.get("kills", 0)
        yield _gauge("tapeline_kills", "Starts after a process that did not end itself.", kills)
        incidents = len(status.get("incidents", []))
        yield _gauge("tapeline_incidents", "Parts that do not work now.", incidents)
        yield _gauge("tapeline_stream_clients", "Clients of the live feed.", self._feed.clients)
        for what, unit in (("lag_records", "records"), ("lag_seconds", "seconds")):
            lag = GaugeMetricFamily(
                f"tapeline_{what}", f"How far a source is behind, in {unit}.", labels=["source"]
            )
            for name, source in status.get("sources", {}).items():
                lag.add_metric([name], source[what])
            yield lag
        yield from _partitions(status)
        yield from _sinks(status)
        yield from _pulls(read_pulls(self._books.layout))
        records = CounterMetricFamily(
            "tapeline_records", "Records by table and verdict.", labels=["table", "verdict"]
        )
        for table, totals in cut.body.get("totals", {}).items():
            for verdict, count in totals.get("verdicts", {}).items():
                records.add_metric([table, verdict], count)
        yield records


def _partitions(status: dict[str, Any]) -> Iterator[Metric]:
    """How far the books are behind each partition of topics."""
    for what, about in (
        ("lag_records", "Messages of a partition that are not in the books."),
        ("lag_seconds", "The age of the oldest of them."),
    ):
        lag = GaugeMetricFamily(f"tapeline_partition_{what}", about, labels=["source", "partition"])
        for name, source in status.get("sources", {}).items():
            for partition, facts in source.get("partitions", {}).items():
                lag.add_metric([name, partition], facts[what])
        yield lag
    catch_up = GaugeMetricFamily(
        "tapeline_catch_up_seconds",
        "When a source's lag will be gone at its recent pace; absent while it does not shrink.",
        labels=["source"],
    )
    for name, source in status.get("sources", {}).items():
        if source.get("catch_up_seconds") is not None:
            catch_up.add_metric([name], source["catch_up_seconds"])
    yield catch_up


def _sinks(status: dict[str, Any]) -> Iterator[Metric]:
    for name, fact, about in (
        ("tapeline_sink_batch", "delivered_batch", "The last batch that a sink has delivered."),
        ("tapeline_sink_lag_batches", "lag_batches", "How many batches a sink is behind."),
    ):
        found = GaugeMetricFamily(name, about, labels=["sink"])
        for sink, facts in status.get("sinks", {}).items():
            if facts[fact] is not None:
                found.add_metric([sink], facts[fact])
        yield found


def _pulls(pulling: dict[str, Any]) -> Iterator[Metric]:
    yield _gauge("tapeline_pulling", "1 while 'tapeline pull' runs.", int(pulling["running"]))
    counted = CounterMetricFamily(
        "tapeline_pull_records", "Records that a pull has delivered.", labels=["pull"]
    )
    for pull in pulling["pulls"]:
        counted.add_metric([pull["pull"]], pull["records_ever"])
    yield counted
    for name, fact, about in (
        ("failures", "failures", "Attempts that failed since 'tapeline pull' was started."),
        ("lag_records", "lag_records", "Records still to come, at most; absent if unknown."),
        ("caught_up", "caught_up", "1 when all that the system had has come."),
        ("asked_timestamp_seconds", "asked_at", "When the system was last asked."),
        ("pulled_timestamp_seconds", "pulled_at", "When records last came."),
        ("next_timestamp_seconds", "next_at", "When it is asked next; absent if given up."),
    ):
        found = GaugeMetricFamily(f"tapeline_pull_{name}", about, labels=["pull"])
        for pull in pulling["pulls"]:
            if pull[fact] is not None:
                found.add_metric([pull["pull"]], _number(pull[fact]))
        yield found


def _number(fact: float | str) -> float:
    """A number; of a moment, its seconds."""
    return datetime.fromisoformat(fact).timestamp() if isinstance(fact, str) else float(fact)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, value=value)


def metrics_of(books: Books, feed: Feed) -> Response:
    registry = CollectorRegistry()
    registry.register(_Books(books, feed))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
