"""The converters of examples/: from topic to topic in a few lines, message by message."""

from __future__ import annotations

import io
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tapeline.books import Books
from tapeline.broker import Broker
from tapeline.plan import load_pipeline, resolve
from tapeline.run.runner import Runner
from tapeline.settings import KafkaSettings, Settings, activate
from tapeline.watch.status import read_status
from tests.kafka import consumed_bytes, produced

EXAMPLES = Path(__file__).parents[2] / "examples" / "converters"
START = datetime(2026, 11, 13, 14, 30, tzinfo=UTC)


@pytest.fixture
def forget_settings() -> Iterator[None]:
    yield
    activate(Settings())


def trade(number: int) -> dict[str, Any]:
    return {
        "trade_id": f"t{number}",
        "traded_at": START + timedelta(milliseconds=number),
        "side": ("BUY", "SELL")[number % 2],
        "quantity": 10**12 + number,
        "price": Decimal(number) + Decimal("0.1234"),
    }


def as_json(number: int) -> str:
    said = trade(number)
    said |= {"traded_at": said["traded_at"].isoformat(), "price": str(said["price"])}
    return json.dumps(said)


@pytest.mark.usefixtures("forget_settings")
def test_json_becomes_avro_with_the_header_of_the_registry(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, spark: Any
) -> None:
    incoming, outgoing = topic(2), topic(3)
    settings = Settings(
        project=EXAMPLES,
        root=tmp_path,
        kafka=KafkaSettings(brokers=broker.bootstrap_servers),
        pipeline={"json_to_avro": {"from": incoming, "to": outgoing}},
    )
    plan = resolve(load_pipeline("json_to_avro.py", settings))
    schema = json.loads((EXAMPLES / "schemas" / "7.avsc").read_text())

    def arrived() -> list[dict[str, Any]]:
        found = []
        for value in (one for part in consumed_bytes(broker, outgoing) for one in part):
            assert struct.unpack(">bI", value[:5]) == (0, 7)
            found.append(fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None))
        return sorted(found, key=lambda one: int(one["trade_id"][1:]))

    produced(broker, incoming, [*map(as_json, range(40)), "not JSON"])
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
    assert arrived() == [trade(number) for number in range(40)]
    with Runner(plan, settings, session=spark) as runner:
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            produced(broker, incoming, map(as_json, range(40, 70)))
            deadline = time.monotonic() + 120
            while len(arrived()) < 70:
                assert time.monotonic() < deadline, "the messages did not come"
                time.sleep(0.2)
        finally:
            runner.stop()
            thread.join()
        status = read_status(runner.layout.status) or {}
    assert arrived() == [trade(number) for number in range(70)]
    said = status["sinks"]["converted"]
    assert said["messages"] == 30
    assert (said["lag_batches"], said["problem"]) == (0, None)


def as_avro(number: int, schema: Any) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, 7))
    fastavro.schemaless_writer(out, schema, trade(number))
    return out.getvalue()


@pytest.mark.usefixtures("forget_settings")
def test_avro_with_the_header_of_the_registry_becomes_json(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, spark: Any
) -> None:
    incoming, outgoing = topic(2), topic(1)
    settings = Settings(
        project=EXAMPLES,
        root=tmp_path,
        kafka=KafkaSettings(brokers=broker.bootstrap_servers),
        pipeline={"avro_to_json": {"from": incoming, "to": outgoing}},
    )
    plan = resolve(load_pipeline("avro_to_json.py", settings))
    schema = json.loads((EXAMPLES / "schemas" / "7.avsc").read_text())
    good = [as_avro(number, schema) for number in range(40)]
    produced(broker, incoming, [*good, good[0][:7], struct.pack(">bI", 0, 8) + good[0][5:]])
    for _ in range(2):  # the second run finds nothing to do
        with Runner(plan, settings, session=spark) as runner:
            runner.run_once()
    found = [json.loads(value) for part in consumed_bytes(broker, outgoing) for value in part]
    for one in found:
        one["traded_at"] = datetime.fromisoformat(one["traded_at"])
        one["price"] = Decimal(one["price"])
    assert sorted(found, key=lambda one: int(one["trade_id"][1:])) == [*map(trade, range(40))]
    assert Books(plan, settings.home(plan.name)).with_verdict("trades", "quarantined").num_rows == 2
