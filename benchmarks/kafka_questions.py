"""The questions about topics: a broker of the benchmark's own, and arms side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable, write_deltalake

from benchmarks.by_hand import GoldTotal, gold_rows
from benchmarks.generate import Input, bench_folder, make
from benchmarks.latency import LINES_PER_FILE, Latency, Sent, watch
from benchmarks.measure import running
from benchmarks.ours import SummaryTotal
from benchmarks.scenarios import Facts, arm, environment, fresh_root, right
from benchmarks.sums import checksum
from tapeline.broker import Broker

PARTITIONS = 4
WARM_UP_MESSAGES = 20_000
MESSAGES_PER_SECOND = 1_000
ROWS_PER_FILE = 5_000
FLUSH_SECONDS = 120.0
Print = tuple[int, int]


@contextmanager
def own_broker() -> Iterator[Broker]:
    with fresh_root("broker") as root:
        broker = Broker(root)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


def fill(broker: Broker, topic: str, lines: Iterable[bytes], partitions: int = PARTITIONS) -> int:
    """Make a topic that holds these lines; how many they are."""
    broker.make_topic(topic, partitions)
    options = {"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 20}
    producer, count = Producer(options), 0
    for line in lines:
        while True:
            try:
                producer.produce(topic, line, str(count))
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    if producer.flush(FLUSH_SECONDS):
        raise RuntimeError(f"the broker did not take all of {topic}")
    return count


def lines_of(made: Input) -> Iterator[bytes]:
    for file in made.files:
        yield from file.read_bytes().splitlines()


def print_of(values: Any) -> Print:
    """How many values there are, and a sum over them that does not depend on their order."""
    with duckdb.connect() as connection:
        connection.register("given", values)
        query = "select count(*), coalesce(sum(hash(value)::hugeint), 0) from given"
        ((count, total),) = connection.sql(query).fetchall()
    return int(count), int(total)


def stored_print(table: Path, column: str) -> Print:
    found = DeltaTable(str(table)).to_pyarrow_table(columns=[column])
    return print_of(found.rename_columns(["value"]))


def kafka_ingest(scale: float, rounds: int) -> Facts:
    """How fast does a topic reach the tape, against Spark's bare stream from Kafka to Delta?"""
    made = make("million", scale)
    truth = print_of(pa.table({"value": pa.array(lines_of(made), pa.binary())}))
    tables = {"tape": ("books/bench/bronze/raw", "raw"), "delta": ("bench", "value")}
    found: dict[str, list[Facts]] = {name: [] for name in tables}
    with own_broker() as broker:
        messages = fill(broker, "bench", lines_of(made))
        warm = fill(broker, "warm", islice(lines_of(made), WARM_UP_MESSAGES))
        for name in ("tape", "delta", "delta", "tape") * rounds:
            with fresh_root(f"kafka-{name}") as root:
                words = places(root, broker, "bench", messages, "warm", warm)
                facts = arm("benchmarks.kafka_arms", name, *words)
                folder, column = tables[name]
                if stored_print(root / folder, column) != truth:
                    raise RuntimeError(f"{name} stored other messages: it has no number")
            found[name].append(facts)
    rates = {n: [round(messages / one["seconds"]) for one in f] for n, f in found.items()}
    return {
        "unit": f"messages a second, {messages:,} of them, from a warm start to the last commit",
        **rates,
        "ratio": round(median(rates["tape"]) / median(rates["delta"]), 3),
        "runs": found,
    }


def places(
    root: Path, broker: Broker, topic: str, messages: int, warm: str, warm_messages: int
) -> list[str]:
    return [
        "--root", str(root), "--brokers", broker.bootstrap_servers,
        "--topic", topic, "--messages", str(messages),
        "--warm-up", warm, "--warm-up-messages", str(warm_messages),
    ]  # fmt: skip


def kafka_latency(scale: float, rounds: int) -> Facts:
    """How soon does a message change the number? 1,000 trades a second through a topic."""
    made = make("stream", max(scale, 0.1))
    found: dict[str, list[Facts]] = {"tapeline": [], "by_hand_tuned": []}
    with own_broker() as broker:
        for number in range(rounds):
            found["tapeline"].append(_live(broker, f"ours-{number}", made, by_hand=False))
            found["by_hand_tuned"].append(_live(broker, f"hand-{number}", made, by_hand=True))
    return {
        "unit": "seconds, message acknowledged -> number read",
        **{
            f"{name}_{one}": [run[f"{one}_seconds"] for run in runs]
            for name, runs in found.items()
            for one in ("p50", "p95", "p99")
        },
        "p50_seconds": median(run["p50_seconds"] for run in found["tapeline"]),
        "p99_seconds": median(run["p99_seconds"] for run in found["tapeline"]),
        "times_lower_than_tuned": round(
            median(run["p50_seconds"] for run in found["by_hand_tuned"])
            / median(run["p50_seconds"] for run in found["tapeline"]), 3
        ),
        "lower_bounds": [
            name
            for name, runs in found.items()
            if any(run["never_seen"] or not run.get("right", True) for run in runs)
        ],
        "runs": found,
    }  # fmt: skip


def _live(broker: Broker, topic: str, made: Input, by_hand: bool) -> Facts:
    # One partition: what the total counts after each message is known by their order.
    broker.make_topic(topic, 1)
    variables = {
        "TAPELINE_KAFKA_BROKERS": broker.bootstrap_servers,
        "TAPELINE_PIPELINE_TRADES_TOPICS": topic,
    }
    with fresh_root(topic) as root:
        words = ["--root", str(root), "--reference", str(made.reference)]
        arguments = ["benchmarks.ours", "live", *words]
        if by_hand:
            arguments = ["benchmarks.by_hand", *words, "--drop", str(root), "--tuned"]
            arguments += ["--watermark", "60 days", "--topic", topic]
            arguments += ["--brokers", broker.bootstrap_servers]
        total = GoldTotal(root) if by_hand else SummaryTotal(root)
        with environment(variables):
            live = running(arguments, bench_folder() / "logs" / f"kafka-{topic}.log")
            with live as process:
                process.wait_for("ready", 180)
                seen = measure(made, broker, topic, total)
                usage = process.watch.sample()
                process.stop()
        found = {
            "arm": topic,
            "checksum": checksum(gold_rows(root)) if by_hand else SummaryTotal(root).checksum(),
            **seen.summary(),
            "cpu_seconds": round(usage.cpu_seconds, 1),
            "peak_rss_mb": usage.peak_rss_bytes >> 20,
        }
    # By hand may not keep up: its latency is then a lower bound, and the result says so.
    return {**found, "right": found["checksum"] == made.checksum} if by_hand else right(found, made)


def measure(made: Input, broker: Broker, topic: str, read_total: Any) -> Latency:
    """Send an input's lines at their pace, and watch the total until the last one is counted.

    Every two-hundredth message is measured: what the total is after it is known.
    """
    begin = time.monotonic() + 0.5
    every = LINES_PER_FILE / MESSAGES_PER_SECOND
    sents = [Sent(total, begin + (n + 1) * every) for n, total in enumerate(made.cumulative)]
    # Java is cold at first, and what piled up meanwhile has to be processed.
    latency = Latency(sents, warm_up=len(sents) // 2)
    stop = threading.Event()
    words = (broker.bootstrap_servers, topic, made.files, sents, begin, stop)
    sender = threading.Thread(target=send, args=words, daemon=True)
    sender.start()
    try:
        watch(latency, read_total, sents[-1].due + 120)
    finally:
        latency.ended = time.monotonic()
        stop.set()
        sender.join()
    return latency


def send(
    brokers: str,
    topic: str,
    files: Sequence[Path],
    sents: Sequence[Sent],
    begin: float,
    stop: threading.Event,
) -> None:
    """Each message when it is due, whatever became of those before it: an open loop."""
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 1})
    number = 0
    for file, sent in zip(files, sents, strict=True):
        lines = file.read_bytes().splitlines()
        for place, line in enumerate(lines):
            while (wait := begin + number / MESSAGES_PER_SECOND - time.monotonic()) > 0:
                producer.poll(min(wait, 0.001))
            if stop.is_set():
                return
            last = place == len(lines) - 1
            producer.produce(topic, line, on_delivery=_noting(sent) if last else None)
            number += 1
    producer.flush(FLUSH_SECONDS)


def _noting(sent: Sent) -> Any:
    def acknowledged(error: Any, _: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        sent.renamed = time.monotonic()

    return acknowledged


def kafka_delivery(scale: float, rounds: int) -> Facts:
    """How fast are rows delivered exactly once, against Spark's sink, which is at least once?"""
    made = make("million", scale, clean=True)  # values are text
    found: dict[str, list[float]] = {"deliver": [], "sink": []}
    with own_broker() as broker, fresh_root("kafka-rows") as tables:
        messages = write_rows(tables / "bench", lines_of(made))
        warm = write_rows(tables / "warm", islice(lines_of(made), WARM_UP_MESSAGES))
        for number, name in enumerate(("deliver", "sink", "sink", "deliver") * rounds):
            topic, warm_topic = f"out-{number}", f"warm-{number}"
            broker.make_topic(topic, PARTITIONS)
            broker.make_topic(warm_topic, PARTITIONS)
            with fresh_root(f"kafka-{name}") as root:
                words = places(root, broker, topic, messages, warm_topic, warm)
                words += ["--rows", str(tables / "bench"), "--warm-up-rows", str(tables / "warm")]
                facts = arm("benchmarks.kafka_arms", name, *words)
            if delivered(broker, topic) != messages:
                raise RuntimeError(f"{name} delivered other messages: it has no number")
            found[name].append(round(messages / facts["seconds"]))
    return {
        "unit": f"messages a second, {messages:,} of them, from a warm start to the last one",
        **found,
        "ratio": round(median(found["deliver"]) / median(found["sink"]), 3),
    }


def write_rows(table: Path, lines: Iterable[bytes]) -> int:
    """A Delta table of keys and values, in files of five thousand."""
    rest, count = iter(lines), 0
    while some := list(islice(rest, ROWS_PER_FILE)):
        keys = [str(count + place) for place in range(len(some))]
        rows = pa.table({"key": keys, "value": pa.array(some, pa.binary())})
        write_deltalake(str(table), rows, mode="append")
        count += len(some)
    return count


def delivered(broker: Broker, topic: str) -> int:
    """Committed messages in a topic, counted by reading them: offsets count marks, too."""
    options = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "count",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, place, 0) for place in range(PARTITIONS)])
    count = ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, timeout=10):
            if message.error() is None:
                count += 1
            else:
                ended += 1
    consumer.close()
    return count
