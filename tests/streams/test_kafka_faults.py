"""A cluster that is not there, dies, refuses, or sends fifty times as much: faults 49, 50, 58, 60.

Real brokers, real Spark; the expected books are those of an independent few lines of Python.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation

from tapeline import OperationError
from tapeline.broker import Broker
from tapeline.settings import (
    FlowSettings,
    IntakeSettings,
    LogSettings,
    Settings,
)
from tapeline.testing import Deployment, plan_of
from tests.support.kafka import produced
from tests.support.kafka_cluster import PASSWORD, VARIABLE, Cluster
from tests.support.orders import Make, expected, found, live, order, orders
from tests.support.trades_oracle import equals_the_oracle
from tests.support.waiting import wait_for

PATIENCE_SECONDS = 120.0


@pytest.mark.slow
def test_a_run_waits_for_its_cluster_and_outlives_its_death(
    own: Broker, tmp_path: Path, spark: Any
) -> None:
    """Faults 50 and 49: nobody answers at the start; then the broker is killed with messages
    acknowledged and others on their way, and comes back. 3,000 messages, each counted once."""
    own.make_topic("waited-for", 2)
    own.stop()
    here = orders("waited-for", tmp_path, own)
    with here.running():
        wait_for(lambda: "SOURCE_DOWN" in str(here.status().problems))
        own.start()
        options = {"bootstrap.servers": own.bootstrap_servers, "enable.idempotence": True}
        producer = Producer(options)
        send(producer, range(1_000))
        wait_for(lambda: bool(found(here.books)))
        send(producer, range(1_000, 2_000))
        os.kill(own.status().pid or 0, signal.SIGKILL)
        send(producer, range(2_000, 3_000))
        own.start()
        assert producer.flush(PATIENCE_SECONDS) == 0
        wait_for(lambda: found(here.books) == expected(range(3_000)))
        assert here.books.totals()["orders"].verdicts == {"kept": 3_000}
        wait_for(lambda: not here.status().problems and not here.status().incidents)
    assert here.unbalanced() == []


def send(producer: Producer, numbers: range) -> None:
    for number in numbers:
        producer.produce("waited-for", order(number), f"o{number}")
        producer.poll(0)


def test_a_burst_of_fifty_times_waits_in_the_topic(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    """Fault 60, small: batches of at most 1,000 while 10,000 messages of 1 kB come at once, which
    is fifty times what the run took a moment before. What is on the tape and not booked stays
    below 4 pieces of 250, the process grows by less than 200 MB, and the lag falls to nothing."""
    name = topic(2)
    here = orders(
        name, tmp_path, broker,
        intake=IntakeSettings(records_per_piece=250, pieces_ahead=4),
        flow=FlowSettings(records_per_batch=1_000, bytes_per_tape_batch=128 * 1024),
        log=LogSettings(format="json"),
    )  # fmt: skip
    with here.running() as runner:
        produced(broker, name, map(order, range(200)))
        wait_for(lambda: found(here.books) == expected(range(200)))
        process = psutil.Process()
        before = process.memory_info().rss
        produced(broker, name, (f"{order(n):<1000}" for n in range(200, 10_200)))
        wait_for(lambda: here.status().lag_records > 2_000)
        lags, ahead, grown = [], 0, 0
        while here.status().batch == 0 or here.status().lag_records:
            lags.append(here.status().lag_records)
            ahead = max(ahead, runner.flow.backlog.pieces("raw"))
            grown = max(grown, process.memory_info().rss - before)
            assert len(lags) < 10_000
            time.sleep(0.05)
        wait_for(lambda: found(here.books) == expected(range(10_200)))
    batches = [line for line in logged(runner.layout.log) if line["event"] == "published"]
    assert max(line["records"] for line in batches) <= 1_000
    assert ahead <= 5  # the limit, and the one that was being written
    assert grown < 200 * 1024 * 1024
    assert lags[-1] < max(lags)


def logged(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(folder.glob("*"))
        for line in file.read_text().splitlines()
    ]


def test_trades_over_sasl_and_tls_reach_the_books_and_a_secret_reaches_nothing(
    cluster: Cluster, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 58: a wrong password ends a run with AUTH, live or once; the right one reads the same
    topic. A password that is wrong later is shown, and the run goes on."""
    cluster.broker.make_topic("safe-orders", 2)
    cluster.allow("safe-orders", AclOperation.READ, AclOperation.DESCRIBE)
    cluster.allow_group("tapeline.orders.raw")
    produced(cluster.broker, "safe-orders", map(order, range(200)))
    here = orders("safe-orders", tmp_path, cluster.settings())
    monkeypatch.setenv(VARIABLE, "wrong-Secret-5")
    with here.runner() as runner:
        with pytest.raises(OperationError, match="AUTH: the cluster refuses the user 'reader'"):
            runner.run()
        assert "AUTH" in str(here.status().incidents)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    here.run_once()
    assert found(here.books) == expected(range(200))
    monkeypatch.setenv(VARIABLE, "wrong-Secret-5")
    with here.runner() as runner:
        with pytest.raises(OperationError, match="AUTH: the cluster refuses the user 'reader'"):
            runner.run_once()
        with live(runner):
            wait_for(lambda: "AUTH" in str(here.status().problems))
            assert not runner.stopping
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    secrets = (b"wrong-Secret-5", PASSWORD.encode())
    assert written
    assert not any(secret in content for content in written for secret in secrets)
    assert PASSWORD not in f"{here}"


@pytest.mark.slow
def test_simulator_and_flow_are_killed_and_every_trade_counts_once(
    broker: Broker, topic: Make, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The producer is killed five times at random over a day of 4,000 trades, the flow with it
    every other time; the books and the count of every verdict equal the oracle's, so that no
    acknowledged message is lost or comes twice."""
    name, chance = topic(3), Random(11)
    environment = {
        **os.environ,
        "TAPELINE_KAFKA_BROKERS": broker.bootstrap_servers,
        "TAPELINE_PIPELINE_TRADES_TOPICS": name,
        "TAPELINE_JARS": str(Path(__file__).parents[2] / ".jars"),
    }

    def start(*words: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-m", "tapeline", *words], cwd=tmp_path, env=environment,
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        request.addfinalizer(lambda: kill(child) if child.poll() is None else None)
        return child

    day = ["simulate", "--topic", name, "--trades", "4000", "--seed", "3"]
    player = start(*day, "--seconds", "100")
    wait_for(lambda: bool(list(tmp_path.glob("reference/truth-*"))))
    flow = start("run", "tapeline.trades")
    for number in range(4):
        time.sleep(chance.uniform(6, 20))
        kill(player)
        if number % 2:
            kill(flow)
            flow = start("run", "tapeline.trades")
        player = start(*day, "--seconds", "100")
    time.sleep(chance.uniform(6, 20))
    kill(player)
    kill(flow)
    assert start(*day, "--seconds", "1").wait(PATIENCE_SECONDS) == 0
    assert start("run", "tapeline.trades", "--once").wait(3 * PATIENCE_SECONDS) == 0
    settings = Settings(project=tmp_path, pipeline={"trades": {"topics": name}})
    plan = plan_of("tapeline.trades", settings)
    equals_the_oracle(Deployment(plan, settings).books, tmp_path / "reference")


def kill(child: subprocess.Popen[bytes]) -> None:
    """With all that it started, and without a word."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
