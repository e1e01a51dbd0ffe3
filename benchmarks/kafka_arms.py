"""The arms on topics, each a process of its own: it warms up on one topic and is timed on another.

python -m benchmarks.kafka_arms tape --root DIR --brokers A --warm-up T0 --topic T --messages N
python -m benchmarks.kafka_arms delta ...      Spark's bare stream from Kafka to Delta
python -m benchmarks.kafka_arms sink ...       Spark's sink: rows of a Delta table to a topic
python -m benchmarks.kafka_arms deliver ...    our delivery of the same rows

`tape` is what a run does up to the tape: the client, pieces, Spark's query, the commit of the
batch; the flow stays out, as it does in the other arm.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks.clock import seconds_since_start
from benchmarks.spark_peer import connector_jars, session
from tapeline import Kafka, Pipeline, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What an expert sets for a backlog: large answers, and batches that need no second pass.
READING = {
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "500000",
    "kafka.isolation.level": "read_committed",
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
WRITING = {"kafka.acks": "all", "kafka.linger.ms": "5", "kafka.batch.size": str(256 << 10)}


def say(arm: str, **facts: object) -> None:
    print(json.dumps({"event": "done", "arm": arm, **facts}), flush=True)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def tape(asked: argparse.Namespace) -> None:
    from tapeline.settings import KafkaSettings, Settings
    from tapeline.spark.session import build_session

    kafka = KafkaSettings(brokers=asked.brokers)
    settings = Settings(project=asked.root, root=asked.root / "books", kafka=kafka)
    spark = build_session(settings, "bench")
    take_topic(spark, settings, "warm", asked.warm_up, asked.warm_up_messages)
    ready = seconds_since_start()
    seconds = timed(lambda: take_topic(spark, settings, "bench", asked.topic, asked.messages))
    spark.stop()
    say("tape", seconds=round(seconds, 3), ready_seconds=round(ready, 3))


def take_topic(spark: SparkSession, settings: Any, name: str, topic: str, messages: int) -> None:
    """From a topic to the tape, until so many messages are on it."""
    from tapeline.books import Layout
    from tapeline.books.operator import OperatorTape
    from tapeline.books.status_file import StatusFile
    from tapeline.books.tape import Tape, TapeBatch
    from tapeline.flow.batch_size import BatchSize
    from tapeline.intake.loop import IntakeLoop
    from tapeline.plan import resolve
    from tapeline.settings import SuperviseSettings
    from tapeline.spark.ingest import Ingest
    from tapeline.supervisor import Supervisor

    pipeline = Pipeline(name)
    pipeline.source("raw", Kafka(topic, format="text"))
    pipeline.table(messages_as_they_are)
    plan, layout = resolve(pipeline), Layout(settings.home(name))
    layout.home.mkdir(parents=True)
    made = Tape(layout, "raw", _now)
    supervisor = Supervisor(name, SuperviseSettings(), lambda _: None, _now)
    status = StatusFile(layout.status, _now())
    room = BatchSize(settings.flow.records_per_batch, 0)
    # Of the flow, which stays out, taking needs no more than this.
    flow: Any = SimpleNamespace(
        tapes={"raw": made}, room=room, operator=OperatorTape(layout.operator), booked=lambda _: 0
    )
    taking = IntakeLoop(plan, settings, flow, supervisor, status, _now)
    accepted, checkpoint = layout.intake("raw") / "accepted", layout.checkpoint("raw")
    enough, stop = threading.Event(), threading.Event()
    seen = 0

    def count(batch: TapeBatch) -> None:
        nonlocal seen
        seen += batch.records
        if seen >= messages:
            enough.set()

    thread = threading.Thread(target=taking.go_on, args=(stop,))
    thread.start()
    query = Ingest(spark, made, accepted, checkpoint, settings, room).start(count)
    while not enough.wait(0.02):
        if not query.isActive:
            raise SystemExit(f"ingest has ended: {query.exception()}")
    stop.set()
    thread.join()
    taking.close()
    query.stop()


def messages_as_they_are(raw: Stream) -> DataFrame:
    """A pipeline has a table; this one is never computed."""
    return raw


def _now() -> datetime:
    return datetime.now(UTC)


def peer_session(root: Path) -> SparkSession:
    """The tuned session of the peers, with Spark's own connector."""
    return session("topics", root / "work", True, **connector_jars())


def delta(asked: argparse.Namespace) -> None:
    spark = peer_session(asked.root)
    to_delta(spark, asked, asked.warm_up, "warm")
    ready = seconds_since_start()
    seconds = timed(lambda: to_delta(spark, asked, asked.topic, "bench"))
    spark.stop()
    say("delta", seconds=round(seconds, 3), ready_seconds=round(ready, 3))


def to_delta(spark: SparkSession, asked: argparse.Namespace, topic: str, name: str) -> None:
    """Spark's bare stream, until the topic's end."""
    places = {"kafka.bootstrap.servers": asked.brokers, "subscribe": topic}
    rows = spark.readStream.format("kafka").options(**places, **READING).load()
    writer = rows.writeStream.format("delta").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(asked.root / "checkpoints" / name))
    writer.start(str(asked.root / name)).awaitTermination()


def sink(asked: argparse.Namespace) -> None:
    """Spark's sink, which delivers at least once."""
    spark = peer_session(asked.root)
    to_topic(spark, asked, asked.warm_up_rows, asked.warm_up)
    ready = seconds_since_start()
    seconds = timed(lambda: to_topic(spark, asked, asked.rows, asked.topic))
    spark.stop()
    say("sink", seconds=round(seconds, 3), ready_seconds=round(ready, 3))


def to_topic(spark: SparkSession, asked: argparse.Namespace, rows: Path, topic: str) -> None:
    """The rows of a Delta table (key, value) to a topic, a few files a batch."""
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 8).load(str(rows))
    places = {"kafka.bootstrap.servers": asked.brokers, "topic": topic}
    writer = stream.select("key", "value").writeStream.format("kafka").options(**places, **WRITING)
    writer = writer.option("checkpointLocation", str(asked.root / "checkpoints" / topic))
    writer.trigger(availableNow=True).start().awaitTermination()


def deliver(asked: argparse.Namespace) -> None:
    """Our delivery: the rows of `asked.rows` to `asked.topic`, exactly once, as `sink` is timed."""
    from benchmarks.outgoing import delivery

    delivery(asked.warm_up_rows, asked.root / "warm", asked.brokers, asked.warm_up)()
    work = delivery(asked.rows, asked.root / "bench", asked.brokers, asked.topic)
    ready = seconds_since_start()
    say("deliver", seconds=round(timed(work), 3), ready_seconds=round(ready, 3))


ARMS = {"tape": tape, "delta": delta, "sink": sink, "deliver": deliver}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ARMS))
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--warm-up", required=True, help="another topic")
    parser.add_argument("--warm-up-messages", type=int, required=True)
    parser.add_argument("--rows", type=Path, help="a Delta table of keys and values")
    parser.add_argument("--warm-up-rows", type=Path, help="another one")
    asked = parser.parse_args()
    ARMS[asked.what](asked)


if __name__ == "__main__":
    main()
