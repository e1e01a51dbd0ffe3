"""The intake of topics by itself, and what it puts on its tape."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tapeline.books.layout import Layout
from tapeline.books.operator import OperatorTape
from tapeline.books.tape import Tape
from tapeline.broker import Broker
from tapeline.connect import Kafka
from tapeline.intake.files import IntakeLimits
from tapeline.intake.kafka import TopicIntake, TopicOwner
from tapeline.settings import KafkaSettings


def opened(
    broker: Broker, home: Path, kafka: Kafka, on_loss: str = "stop", **limits: int
) -> TopicIntake:
    settings = KafkaSettings(brokers=broker.bootstrap_servers, on_loss=on_loss)  # type: ignore[arg-type]
    owner = TopicOwner("test", "raw", OperatorTape(home / "operator"), "tests")
    tape = tape_at(home)
    intake = TopicIntake(kafka, tape, settings, IntakeLimits(**limits), now, owner)
    intake.recover()
    return intake


def now() -> datetime:
    return datetime.now(UTC)


def tape_at(home: Path) -> Tape:
    return Tape(Layout(home), "raw", now)


def take_all(intake: TopicIntake, seconds: float = 30.0) -> None:
    """Until the cluster has nothing more."""
    deadline = time.monotonic() + seconds
    quiet = 0
    while quiet < 4:
        assert time.monotonic() < deadline, "it did not come to an end"
        quiet = 0 if intake.take() or intake.waiting()[0] else quiet + 1


def rows(home: Path) -> list[dict[str, object]]:
    """All that is on the tape, in order."""
    paths = sorted(Layout(home).tape("raw").glob("*.parquet"))
    return pa.concat_tables(pq.read_table(path) for path in paths).to_pylist() if paths else []


def values(home: Path) -> list[str]:
    return [bytes(row["raw"]).decode() for row in rows(home)]  # type: ignore[call-overload]
