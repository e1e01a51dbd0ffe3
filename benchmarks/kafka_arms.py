"""The arms on topics, each a process of its own: it warms up on one topic and is timed on another.

python -m benchmarks.kafka_arms tape --root DIR --brokers A --warm-up T0 --topic T --messages N
python -m benchmarks.kafka_arms delta ...      Spark's bare stream from Kafka to Delta
python -m benchmarks.kafka_arms sink ...       Spark's sink: rows of a Delta table to a topic
python -m benchmarks.kafka_arms deliver ...    our delivery of the same rows

`tape` is what a run does up to the tape: the client, pieces, the commit of the batch; the flow
stays out, as it does in the other arm. It needs no Spark.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.clock import seconds_since_start
from benchmarks.spark_peer import connector_jars, session
from tapeline import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    kafka = KafkaSettings(brokers=asked.brokers)
    settings = Settings(project=asked.root, root=asked.root / "books", kafka=kafka)
    take_topic(settings, "warm", asked.warm_up, asked.warm_up_messages)
    ready = seconds_since_start()
    seconds = timed(lambda: take_topic(settings, "bench", asked.topic, asked.messages))
    say("tape", seconds=round(seconds, 3), ready_seconds=round(ready, 3))


def take_topic(settings: Any, name: str, topic: str, messages: int) -> None:
    """From a topic to the tape, until so many messages are on it."""
    from tapeline.books import Layout
    from tapeline.books.operator import OperatorTape
    from tapeline.books.tape import Tape
    from tapeline.formats.limits import IntakeLimits
    from tapeline.intake.kafka import TopicIntake, TopicOwner

    layout = Layout(settings.home(name))
    layout.home.mkdir(parents=True)
    made = Tape(layout, "raw", _now)
    owner = TopicOwner(name, "raw", OperatorTape(layout.operator), "a benchmark")
    source = Kafka(topic, format="text")
    intake = TopicIntake(source, made, settings.kafka, IntakeLimits(), _now, owner)
    intake.recover()
    while made.records < messages:
        intake.take()
    intake.close()


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
