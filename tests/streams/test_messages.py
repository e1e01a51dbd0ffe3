"""What comes with a message: on the tape, proved, shown, and there for steps that ask for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Kafka, Pipeline, Stream
from tapeline.books.quarantine import show
from tapeline.broker import Broker
from tapeline.cli.read import origin
from tapeline.settings import HousekeepingSettings
from tapeline.store.housekeeping import compact
from tapeline.testing import Books, quarantined, why
from tests.support.orders import stand

SCHEMA = "id string, amount int"
NO_TEXT = b"\xff[red] \x1b[2J"  # no UTF-8, markup, and what clears a terminal


def pipeline_of(topic: str) -> Pipeline:
    pipeline = Pipeline("orders")
    pipeline.source("raw", Kafka(topic, schema=SCHEMA, meta=True))

    @pipeline.table(key="id")
    def orders(raw: Stream) -> DataFrame:
        return raw.withColumns(
            {
                "desk": F.col("message.key").cast("string"),
                "trace": F.col("message.headers")[0]["value"].cast("string"),
            }
        )

    @pipeline.summary(key="desk")
    def takings(orders: Stream) -> DataFrame:
        return orders.groupBy("desk").agg(F.sum("amount").alias("amount"))

    return pipeline


def sent(broker: Broker, topic: str, value: str, key: str | None, **headers: str | bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, key, headers=headers or None, timestamp=1_700_000_000_123)
    assert producer.flush(60) == 0


def test_a_message_comes_with_its_key_headers_and_place(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, spark: Any
) -> None:
    name = topic(1)
    here = stand(pipeline_of(name), tmp_path, broker)
    books = here.books
    sent(broker, name, json.dumps({"id": "a", "amount": 1}), "desk 1", trace="t1", other=NO_TEXT)
    sent(broker, name, json.dumps({"id": "b", "amount": 2}), None)
    sent(broker, name, "not JSON", "desk 2", trace="t3")
    with here.runner() as runner:
        runner.run_once()
        rows = {row["id"]: row for row in books.read("orders").to_pylist()}
        assert (rows["a"]["desk"], rows["a"]["trace"]) == ("desk 1", "t1")
        assert (rows["b"]["desk"], rows["b"]["trace"]) == (None, None)
        message = rows["a"]["message"]
        assert (message["topic"], message["partition"], message["offset"]) == (name, 0, 0)
        assert message["timestamp"].timestamp() == 1_700_000_000.123
        tape = runner.tapes["raw"]
        (wrong,) = quarantined(books)
        shown = show(books, wrong["position"])
        assert shown["message"]["key"] == b"desk 2"
        assert shown["message"]["headers"] == [{"name": "trace", "value": b"t3"}]
        assert shown["message"]["offset"] == 2
        assert_why_tells_what_came_with_a_message(books, name)
        sent(broker, name, json.dumps({"id": "c", "amount": 3}), "desk 3")
        runner.run_once()
        compact(tape.book, HousekeepingSettings().compact_target_bytes)
        found = tape.find([(1, 0), (2, 0)]).to_pylist()
        assert [row["key"] for row in found] == [b"desk 1", b"desk 3"]
    assert here.unbalanced() == []


def assert_why_tells_what_came_with_a_message(books: Books, topic: str) -> None:
    (revision,) = why(books, "takings", ["desk 1"])
    message = revision.records[0]["message"]
    assert (message["topic"], message["partition"], message["offset"]) == (topic, 0, 0)
    assert message["key"] == b"desk 1"
    assert message["headers"] == [
        {"name": "trace", "value": b"t1"},
        {"name": "other", "value": NO_TEXT},
    ]
    told = f"raw {topic}/0 offset 0, key: desk 1, header trace: t1, header other: "
    assert origin(revision.records[0]) == told + r"\xff[red] \x1b[2J"


def test_a_tape_from_before_messages_were_kept_goes_on(
    broker: Broker,
    topic: Callable[..., str],
    tmp_path: Path,
    spark: Any,
    monkeypatch: Any,
) -> None:
    name = topic(1)
    here = stand(pipeline_of(name), tmp_path, broker)
    books = here.books
    sent(broker, name, json.dumps({"id": "a", "amount": 1}), "old")
    with monkeypatch.context() as before, here.runner() as runner:
        before.setattr("tapeline.intake.kafka.messages._beside", lambda *_: None)
        runner.run_once()
    (piece,) = (tmp_path / "books/orders/bronze/raw").glob("*.parquet")
    assert "key" not in pq.read_schema(piece).names
    sent(broker, name, json.dumps({"id": "b", "amount": 2}), "new")
    with here.runner() as runner:
        runner.run_once()
        assert here.unbalanced() == []
        found = runner.tapes["raw"].find([(1, 0), (2, 0)])
        assert found["key"].to_pylist() == [None, b"new"]
        compact(runner.tapes["raw"].book, HousekeepingSettings().compact_target_bytes)
    rows = {row["id"]: row["message"] for row in books.read("orders").to_pylist()}
    assert rows["a"]["key"] is None
    assert rows["b"]["key"] == b"new"
    assert here.unbalanced() == []
