"""Faults of topics as the books, the audit, the status and the metrics show them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer
from fastapi.responses import Response
from typer.testing import CliRunner

from tapeline.broker import Broker
from tapeline.cli import app
from tapeline.serve.feed import Feed
from tapeline.serve.metrics import metrics_of
from tapeline.settings import FlowSettings, IntakeSettings
from tapeline.testing import quarantined
from tests.support.kafka import produced, remove_before
from tests.support.orders import Make, expected, found, kafka_of, order, orders
from tests.support.waiting import wait_for


def test_what_a_cluster_lost_repeated_or_garbled_is_named_in_the_books(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    """Faults 51, 56 and 59."""
    name = topic(1)
    here = orders(
        name, tmp_path, kafka_of(broker, on_loss="go_on"),
        root=tmp_path / "tapeline-data", intake=IntakeSettings(record_bytes=800_000),
    )  # fmt: skip
    books = here.books
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in (order(1), order(2), order(2)):  # 56: a producer that sent twice
        producer.produce(name, value)  # 59: and none of them has a key
    producer.produce(name, None, key="tombstone")
    producer.produce(name, b"x" * 900_000)
    producer.produce(name, Random(1).randbytes(100))
    assert producer.flush(60) == 0
    with here.runner() as runner:
        runner.run_once()
        assert found(books) == expected(range(1, 3))
        verdicts = books.totals()["orders"].verdicts
        assert verdicts == {"kept": 2, "duplicate": 1, "quarantined": 3}
        waiting = {row["position"][-1]: row for row in quarantined(books)}
        reasons = {place: row["reasons"][0] for place, row in waiting.items()}
        assert reasons["3"] == "the message has no value"
        assert reasons["4"] == "message is longer than the limit; the rest is lost"
        assert waiting["4"]["details"][0].startswith("900,000 bytes, the limit is")
        assert reasons["5"] == "the record is not UTF-8"
    before = books.cut().batch
    produced(broker, name, [order(3), order(4)])  # offsets 6 and 7
    remove_before(broker, name, 8)
    with here.runner() as runner:
        runner.run_once()
        assert books.cut().batch == before + 1  # the act is in the chain of commits
        produced(broker, name, [order(5)])
        runner.run_once()
    where = ["pipeline.py", "--project", str(tmp_path)]
    said = CliRunner().invoke(app, ["audit", *where, "--full", "--json"])
    assert said.exit_code == 0, said.output
    (gap,) = json.loads(said.output)["gaps"]
    assert (gap["topic"], gap["partition"], gap["from"], gap["to"]) == (name, 0, 6, 7)
    assert gap["accepted_by"]
    text = CliRunner().invoke(app, ["audit", *where], env={"COLUMNS": "200"})
    assert "accepted gaps" in text.output


def test_status_and_metrics_say_how_far_each_partition_is_behind(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    name = topic(2)
    here = orders(name, tmp_path, broker, root=tmp_path / "tapeline-data")
    books = here.books
    where = ["pipeline.py", "--project", str(tmp_path)]

    def partitions() -> dict[str, dict[str, Any]]:
        facts = json.loads(CliRunner().invoke(app, ["status", *where, "--json"]).output)
        return facts.get("sources", {}).get("raw", {}).get("partitions", {})

    with here.running():
        produced(broker, name, map(order, range(20)))
        wait_for(lambda: found(books) == expected(range(20)))
        wait_for(lambda: {p["lag_records"] for p in partitions().values()} == {0})
        assert sorted(partitions()) == [f"{name}/0", f"{name}/1"]
        assert CliRunner().invoke(app, ["pause", *where]).exit_code == 0
        produced(broker, name, map(order, range(20, 50)))
        wait_for(lambda: sum(p["lag_records"] for p in partitions().values()) == 30)
        wait_for(lambda: max(p["lag_seconds"] for p in partitions().values()) > 0)
        assert "messages, oldest " in CliRunner().invoke(app, ["status", *where]).output
        scraped: Response = metrics_of(books, Feed(books, 1))
        text = bytes(scraped.body).decode()
        assert f'tapeline_partition_lag_seconds{{partition="{name}/0",source="raw"}}' in text
        assert CliRunner().invoke(app, ["resume", *where]).exit_code == 0
        wait_for(lambda: found(books) == expected(range(50)))
        wait_for(lambda: {p["lag_records"] for p in partitions().values()} == {0})
        assert {p["catch_up_seconds"] for p in partitions().values()} == {0.0}


def test_batches_become_as_small_as_their_time_asks_for(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    name = topic(1)
    limits = FlowSettings(records_per_batch=4_000, target_batch_seconds=0.001)
    here = orders(name, tmp_path, broker, flow=limits)
    with here.runner() as runner:
        sizes = []
        for first in range(0, 12_000, 4_000):
            produced(broker, name, map(order, range(first, first + 4_000)))
            sizes += [batch.records for batch in runner.run_once()]
        assert runner.flow.room.records == 1_000
        status = json.loads(here.books.layout.status.read_text())
        assert status["batch_limit_records"] == 1_000
    assert max(sizes) <= 4_000
    assert max(sizes[-3:]) <= 1_000
    assert found(here.books) == expected(range(12_000))
