"""Fifty times as many messages for ten minutes: what waits in the topic, and what is used."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

from benchmarks.generate import Input, bench_folder, make
from benchmarks.kafka_questions import FLUSH_SECONDS, own_broker
from benchmarks.measure import Arm, running
from benchmarks.ours import SummaryTotal
from benchmarks.scenarios import Facts, environment, fresh_root, right
from tapeline.books import Layout
from tapeline.books.commits import read_commits
from tapeline.books.status import Status, read_status
from tapeline.broker import Broker

ORDINARY_RATE, BURST_RATE = 100, 5_000
BEFORE_SECONDS, BURST_SECONDS, AFTER_SECONDS = 60.0, 600.0, 120.0
WARM_SECONDS = 20.0  # Java is cold at first
RECORDS_PER_BATCH, TARGET_BATCH_SECONDS = 20_000, 2.0
DRAIN_SECONDS = 3_600.0
SAMPLE_SECONDS = 0.5
SETTLED = 2.0  # a message is in time when it took so many times as long as before the burst
TOPIC = "burst"


@dataclass(frozen=True)
class Spans:
    """When each message is due: an ordinary pace, the burst, and the ordinary pace again."""

    burst_seconds: float

    @property
    def messages(self) -> int:
        ordinary = ORDINARY_RATE * (BEFORE_SECONDS + AFTER_SECONDS)
        return round(ordinary + BURST_RATE * self.burst_seconds)

    @property
    def burst_ends(self) -> float:
        return BEFORE_SECONDS + self.burst_seconds

    def due(self, number: int) -> float:
        before = ORDINARY_RATE * BEFORE_SECONDS
        behind = number - before - BURST_RATE * self.burst_seconds
        if number < before:
            return number / ORDINARY_RATE
        if behind < 0:
            return BEFORE_SECONDS + (number - before) / BURST_RATE
        return self.burst_ends + behind / ORDINARY_RATE


@dataclass(frozen=True)
class Sample:
    """What was seen at a second of the run: trades in the number, and what waits and is used."""

    at: float
    total: int
    lag_records: int
    rss_mb: int


@dataclass
class Sending:
    """An open loop: each message when it is due, whatever became of those before it."""

    made: Input
    spans: Spans
    begin: float
    stop: threading.Event = field(default_factory=threading.Event)
    behind_seconds: float = 0.0
    ends: list[float] = field(default_factory=list)  # when the last message of each file was due

    def run(self, brokers: str) -> None:
        options = {"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 5}
        producer, number = Producer(options), 0
        for file in self.made.files:
            for line in file.read_bytes().splitlines():
                due = self.spans.due(number)
                if not self._wait(producer, due):
                    return
                self._send(producer, line)
                number += 1
            self.ends.append(due)
        producer.flush(FLUSH_SECONDS)

    def _wait(self, producer: Producer, due: float) -> bool:
        """Until a message is due; False when all is over."""
        while (wait := self.begin + due - time.monotonic()) > 0:
            producer.poll(min(wait, 0.005))
            if self.stop.is_set():
                return False
        self.behind_seconds = max(self.behind_seconds, -wait)
        return True

    def _send(self, producer: Producer, line: bytes) -> None:
        while True:
            try:
                producer.produce(TOPIC, line)
                return
            except BufferError:
                producer.poll(0.1)


def kafka_burst(scale: float, rounds: int) -> Facts:
    """What waits, and what is used, when fifty times as many messages come for ten minutes?"""
    spans = Spans(BURST_SECONDS * scale)
    made = make("burst", spans.messages / 500_000)
    runs = [_burst(made, spans) for _ in range(rounds)]
    return {
        "unit": f"{made.lines:,} messages, {BURST_RATE:,} a second for {spans.burst_seconds:g} s",
        "batch_limit": RECORDS_PER_BATCH,
        "most_records_in_a_batch": max(one["most_records_in_a_batch"] for one in runs),
        "most_lag_records": max(one["most_lag_records"] for one in runs),
        "lag_records_at_the_end": max(one["lag_records_at_the_end"] for one in runs),
        "in_time_again_seconds": max(one["in_time_again_seconds"] for one in runs),
        "rss_ratio": max(one["rss_ratio"] for one in runs),
        "peak_rss_mb": max(one["peak_rss_mb"] for one in runs),
        "runs": runs,
    }


def _burst(made: Input, spans: Spans) -> Facts:
    with own_broker() as broker, fresh_root("kafka-burst") as root:
        # One partition: what the total counts after each message is known by their order.
        broker.make_topic(TOPIC, 1)
        variables = {
            "TAPELINE_KAFKA_BROKERS": broker.bootstrap_servers,
            "TAPELINE_PIPELINE_TRADES_TOPICS": TOPIC,
            "TAPELINE_FLOW_RECORDS_PER_BATCH": str(RECORDS_PER_BATCH),
            "TAPELINE_FLOW_TARGET_BATCH_SECONDS": str(TARGET_BATCH_SECONDS),
        }
        words = ["benchmarks.ours", "live", "--root", str(root), "--reference", str(made.reference)]
        log = bench_folder() / "logs" / "kafka-burst.log"
        with environment(variables), running(words, log) as live:
            live.wait_for("ready", 180)
            samples, sent = watch(made, spans, broker, live, root)
            usage = live.watch.sample()
            live.stop()
        facts = {
            "arm": "tapeline",
            "checksum": SummaryTotal(root).checksum(),
            "sender_behind_seconds": round(sent.behind_seconds, 2),
            **batches(root),
            **told(samples, sent),
            "peak_rss_mb": usage.peak_rss_bytes >> 20,
            "cpu_seconds": round(usage.cpu_seconds, 1),
        }
    return right(facts, made)


def watch(
    made: Input, spans: Spans, broker: Broker, live: Arm, root: Path
) -> tuple[list[Sample], Sending]:
    """Send, and look until everything is counted and nothing waits any more."""
    total = SummaryTotal(root)
    status = Layout(root / "books" / "trades").status
    sending = Sending(made, spans, time.monotonic() + 0.5)
    sender = threading.Thread(target=sending.run, args=(broker.bootstrap_servers,), daemon=True)
    samples: list[Sample] = []
    until = sending.begin + spans.due(made.lines) + DRAIN_SECONDS
    sender.start()
    try:
        while time.monotonic() < until and not _over(samples, made, sender):
            time.sleep(SAMPLE_SECONDS)
            waits = (read_status(status) or Status()).lag_records
            counted = total()
            at = time.monotonic() - sending.begin
            samples.append(Sample(at, counted, waits, live.watch.sample().rss_bytes >> 20))
    finally:
        sending.stop.set()
        sender.join()
    return samples, sending


def _over(samples: Sequence[Sample], made: Input, sender: threading.Thread) -> bool:
    if sender.is_alive() or not samples:
        return False
    return samples[-1].total >= made.trades and samples[-1].lag_records == 0


def batches(root: Path) -> Facts:
    rows = read_commits(Layout(root / "books" / "trades").commits)
    sizes = [row.commit.records for row in rows if row.decides]
    return {"batches": len(sizes), "most_records_in_a_batch": max(sizes)}


def told(samples: Sequence[Sample], sent: Sending) -> Facts:
    """What the samples say: waits before and after the burst, lag, and memory while it is busy."""
    spans, waits = sent.spans, list(_waits(samples, sent))
    ordinary = median(wait for at, wait in waits if WARM_SECONDS < at < BEFORE_SECONDS)
    after = [(at, wait) for at, wait in waits if at >= spans.burst_ends]
    again = [at + wait for at, wait in after if wait <= SETTLED * ordinary + SAMPLE_SECONDS]
    in_time = again[0] if again else samples[-1].at
    busy = [one for one in samples if BEFORE_SECONDS <= one.at <= in_time]
    quarter = max(1, len(busy) // 4)
    second = median(one.rss_mb for one in busy[quarter : 2 * quarter] or busy)
    last = median(one.rss_mb for one in busy[-quarter:])
    return {
        "ordinary_seconds": round(ordinary, 2),
        "longest_seconds": round(max(wait for _, wait in waits), 2),
        "in_time_again_seconds": round(in_time - spans.burst_ends, 1),
        "most_lag_records": max(one.lag_records for one in samples),
        "lag_records_at_the_end": samples[-1].lag_records,
        "rss_mb_second_quarter": second,
        "rss_mb_last_quarter": last,
        "rss_ratio": round(last / second, 3),
        # Every so many seconds: when, what waits, and the memory of all processes.
        "course": [
            (round(one.at), one.lag_records, one.rss_mb)
            for one in samples[:: max(1, len(samples) // 60)]
        ],
    }


def _waits(samples: Sequence[Sample], sent: Sending) -> Iterator[tuple[float, float]]:
    """When every two-hundredth message was due, and how long until it was counted."""
    place = 0
    for due, total in zip(sent.ends, sent.made.cumulative, strict=True):
        while place < len(samples) and (samples[place].total < total or samples[place].at < due):
            place += 1
        if place == len(samples):
            return
        yield due, samples[place].at - due
