"""Metrics in Prometheus format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fastapi import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tapeline.books import Books
from tapeline.books.alerts import LAGS, MISSING, OVERRUNS, REJECTED
from tapeline.books.pulls import PullsStatus, PullStatus, read_pulls
from tapeline.books.reference_ages import ReferenceAge, read_ages
from tapeline.books.status import Status, read_status
from tapeline.intake.alerts import engine_alerts
from tapeline.intake.deliveries import Deliveries
from tapeline.serve.feed import Feed

Fact = float | str | None


class _Books:
    """The metrics of a pipeline, read at each scrape."""

    def __init__(self, books: Books, feed: Feed, project: Path) -> None:
        self._books = books
        self._feed = feed
        self._deliveries = Deliveries(books, project)

    def collect(self) -> Iterator[Metric]:
        cut = self._books.cut()
        status = read_status(self._books.layout.status) or Status()
        yield _gauge("tapeline_batch", "Last published batch.", cut.batch)
        at = cut.at.timestamp() if cut.at else 0
        yield _gauge(
            "tapeline_published_timestamp_seconds", "When the last batch was published.", at
        )
        yield _gauge("tapeline_running", "1 while the pipeline runs.", int(status.running))
        resting = int(status.paused is not None)
        yield _gauge("tapeline_paused", "1 while publishing is paused.", resting)
        milliseconds = status.batch_milliseconds or 0
        yield _gauge(
            "tapeline_batch_seconds", "Median duration of recent batches.", milliseconds / 1000
        )
        rate = status.records_per_second or 0
        yield _gauge("tapeline_records_per_second", "Throughput of recent batches.", rate)
        yield _gauge("tapeline_overruns", "Missed runs.", status.overruns)
        yield _gauge("tapeline_starts", "Starts of the pipeline.", status.starts)
        yield _gauge("tapeline_kills", "Restarts after a crash.", status.kills)
        yield _gauge("tapeline_incidents", "Current problems.", len(status.incidents))
        yield from _stuck(status)
        yield _gauge("tapeline_stream_clients", "Clients of the live feed.", self._feed.clients)
        yield from _sources(status)
        yield from _queries(status)
        yield from _partitions(status)
        yield from _delivered(self._deliveries)
        yield from _tick(status)
        yield from _sinks(status)
        yield from _pulls(read_pulls(self._books.layout))
        yield from _references(read_ages(self._books.layout))
        records = CounterMetricFamily(
            "tapeline_records", "Records by table and verdict.", labels=["table", "verdict"]
        )
        for table, totals in cut.commit.totals.items():
            for verdict, count in totals.verdicts.items():
                records.add_metric([table, verdict], count)
        yield records


def _stuck(status: Status) -> Iterator[Metric]:
    """A batch that keeps failing."""
    stuck = status.stuck
    yield _gauge("tapeline_stuck", "1 while a batch keeps failing.", int(stuck is not None))
    attempts = stuck.attempts if stuck else 0
    yield _gauge("tapeline_stuck_attempts", "Failed attempts of that batch.", attempts)
    since = _number(stuck.since) if stuck else 0
    yield _gauge(
        "tapeline_stuck_since_timestamp_seconds", "When it first failed; 0 if none.", since
    )


def _sources(status: Status) -> Iterator[Metric]:
    sources = status.sources.items()
    records = [([name], one.lag_records) for name, one in sources]
    yield _labelled("tapeline_lag_records", "Lag of a source in records.", ["source"], records)
    seconds = [([name], one.lag_seconds) for name, one in sources]
    yield _labelled("tapeline_lag_seconds", "Lag of a source in seconds.", ["source"], seconds)


def _delivered(deliveries: Deliveries) -> Iterator[Metric]:
    """Rejected files, when something last came, and the engine's own alerts."""
    rejected = Counter(one.source for one in deliveries.undecided())
    arrivals = deliveries.last_arrivals()
    yield _labelled(
        "tapeline_rejected_files",
        "Rejected files, not retried and not dismissed yet.",
        ["source"],
        [([name], rejected[name]) for name in arrivals],
    )
    yield _labelled(
        "tapeline_delivery_timestamp_seconds",
        "When the last delivery of a source arrived.",
        ["source"],
        [([name], at.timestamp() if at else None) for name, at in arrivals.items()],
    )
    alerts = engine_alerts(deliveries, datetime.now(UTC))
    active = Counter(one.alert for one in alerts if one.closed_at is None)
    yield _labelled(
        "tapeline_alerts",
        "Active alerts of the engine.",
        ["alert"],
        [([name], active[name]) for name in (REJECTED, MISSING, LAGS, OVERRUNS)],
    )


def _tick(status: Status) -> Iterator[Metric]:
    """Of a run by ticks: the time that a tick takes, and its interval."""
    tick = status.tick
    used = tick.used(datetime.now(UTC)) if tick else 0
    interval = tick.interval_seconds if tick else 0
    yield _gauge("tapeline_tick_seconds", "Duration of the last tick; 0 without ticks.", used)
    yield _gauge("tapeline_tick_interval_seconds", "Interval of ticks; 0 without ticks.", interval)
    share = used / interval if interval else 0
    yield _gauge("tapeline_tick_share", "Share of its interval that a tick uses.", share)


def _queries(status: Status) -> Iterator[Metric]:
    """Sources that are Structured Streaming queries."""
    queries = [([name], one.query) for name, one in status.sources.items() if one.query]
    yield _labelled(
        "tapeline_query_batch",
        "Last batch of a query that is on the tape.",
        ["source"],
        [(names, one.batch) for names, one in queries],
    )
    yield _labelled(
        "tapeline_query_dropped_rows",
        "Rows dropped by a query's watermark; Spark counts them after partial aggregation.",
        ["source"],
        [(names, one.dropped_by_watermark) for names, one in queries],
    )


def _partitions(status: Status) -> Iterator[Metric]:
    """Lag of each topic partition."""
    lags = [
        ([name, partition], lag)
        for name, source in status.sources.items()
        for partition, lag in source.partitions.items()
    ]
    labels = ["source", "partition"]
    yield _labelled(
        "tapeline_partition_lag_records",
        "Messages of a partition that are not in the books yet.",
        labels,
        [(names, lag.lag_records) for names, lag in lags],
    )
    yield _labelled(
        "tapeline_partition_lag_seconds",
        "Age of the oldest such message.",
        labels,
        [(names, lag.lag_seconds) for names, lag in lags],
    )
    yield _labelled(
        "tapeline_catch_up_seconds",
        "Time to catch up at the recent pace; absent while the lag does not shrink.",
        ["source"],
        [([name], one.catch_up_seconds) for name, one in status.sources.items()],
    )


def _sinks(status: Status) -> Iterator[Metric]:
    sinks = status.sinks.items()
    delivered = [([name], one.delivered_batch) for name, one in sinks]
    about = "Last batch delivered by a sink."
    yield _labelled("tapeline_sink_batch", about, ["sink"], delivered)
    lags = [([name], one.lag_batches) for name, one in sinks]
    yield _labelled("tapeline_sink_lag_batches", "Lag of a sink in batches.", ["sink"], lags)


PULLS: tuple[tuple[str, Callable[[PullStatus], Fact], str], ...] = (
    ("failures", lambda p: p.failures, "Failed attempts since 'tapeline pull' started."),
    (
        "lag_records",
        lambda p: p.lag_records,
        "Upper limit of records not pulled yet; absent if unknown.",
    ),
    ("caught_up", lambda p: p.caught_up, "1 when everything has been pulled."),
    ("asked_timestamp_seconds", lambda p: p.asked_at, "Time of the last request."),
    ("pulled_timestamp_seconds", lambda p: p.pulled_at, "When records last arrived."),
    (
        "next_timestamp_seconds",
        lambda p: p.next_at,
        "Time of the next request; absent after retrying stopped.",
    ),
)


def _pulls(pulling: PullsStatus) -> Iterator[Metric]:
    yield _gauge("tapeline_pulling", "1 while 'tapeline pull' is running.", int(pulling.running))
    counted = CounterMetricFamily(
        "tapeline_pull_records", "Records delivered by a pull.", labels=["pull"]
    )
    for pull in pulling.pulls:
        counted.add_metric([pull.pull], pull.records_ever)
    yield counted
    for name, fact, about in PULLS:
        values = [([pull.pull], fact(pull)) for pull in pulling.pulls]
        yield _labelled(f"tapeline_pull_{name}", about, ["pull"], values)


def _references(ages: Sequence[ReferenceAge]) -> Iterator[Metric]:
    """References that live elsewhere."""
    now = datetime.now(UTC)
    values: list[tuple[list[str], Fact]] = [([one.reference], one.age_seconds(now)) for one in ages]
    about = "Time since a reference from outside was last read; batches use what was read then."
    yield _labelled("tapeline_reference_age_seconds", about, ["reference"], values)
    failures: list[tuple[list[str], Fact]] = [([one.reference], one.failures) for one in ages]
    about = "Failed reads of a reference since the last one that succeeded."
    yield _labelled("tapeline_reference_failures", about, ["reference"], failures)


def _labelled(
    name: str, about: str, labels: list[str], values: Sequence[tuple[list[str], Fact]]
) -> Metric:
    """A gauge with labels; what is not known is absent."""
    found = GaugeMetricFamily(name, about, labels=labels)
    for of, value in values:
        if value is not None:
            found.add_metric(of, _number(value))
    return found


def _number(fact: float | str) -> float:
    """A number; a time becomes seconds."""
    return datetime.fromisoformat(fact).timestamp() if isinstance(fact, str) else float(fact)


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, value=value)


def metrics_of(books: Books, feed: Feed, project: Path = Path()) -> Response:
    registry = CollectorRegistry()
    registry.register(_Books(books, feed, project))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
