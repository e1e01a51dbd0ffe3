"""The converters of examples/: from topic to topic in a few lines, message by message."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tapeline.broker import Broker
from tapeline.settings import Settings, activate
from tapeline.testing import Deployment, plan_of
from tests.support.kafka import consumed_bytes, produced
from tests.support.orders import live, stand
from tests.support.waiting import wait_for

EXAMPLES = Path(__file__).parents[2] / "examples" / "converters"
SCHEMA = json.loads((EXAMPLES / "schemas" / "7.avsc").read_text())
START = datetime(2026, 11, 13, 14, 30, tzinfo=UTC)


@pytest.fixture
def forget_settings() -> Iterator[None]:
    yield
    activate(Settings())


def converter(name: str, incoming: str, outgoing: str, folder: Path, broker: Broker) -> Deployment:
    """An example, from one topic to another."""
    said = {name: {"from": incoming, "to": outgoing}}
    plan = plan_of(f"{name}.py", Settings(project=EXAMPLES, pipeline=said))
    return stand(plan, folder, broker, project=EXAMPLES, pipeline=said)


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
    here = converter("json_to_avro", incoming, outgoing, tmp_path, broker)

    def arrived() -> list[dict[str, Any]]:
        found = []
        for value in (one for part in consumed_bytes(broker, outgoing) for one in part):
            assert struct.unpack(">bI", value[:5]) == (0, 7)
            found.append(fastavro.schemaless_reader(io.BytesIO(value[5:]), SCHEMA, None))
        return sorted(found, key=lambda one: int(one["trade_id"][1:]))

    produced(broker, incoming, [*map(as_json, range(40)), "not JSON"])
    with here.runner() as runner:
        runner.run_once()
        assert arrived() == [trade(number) for number in range(40)]
        with live(runner):
            produced(broker, incoming, map(as_json, range(40, 70)))
            wait_for(lambda: len(arrived()) == 70)
        said = here.status().sinks["converted"]
    assert arrived() == [trade(number) for number in range(70)]
    assert said.messages == 70
    assert (said.lag_batches, said.problem) == (0, None)


def as_avro(number: int) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, 7))
    fastavro.schemaless_writer(out, SCHEMA, trade(number))
    return out.getvalue()


@pytest.mark.usefixtures("forget_settings")
def test_avro_with_the_header_of_the_registry_becomes_json(
    broker: Broker, topic: Callable[..., str], tmp_path: Path, spark: Any
) -> None:
    incoming, outgoing = topic(2), topic(1)
    here = converter("avro_to_json", incoming, outgoing, tmp_path, broker)
    good = [as_avro(number) for number in range(40)]
    produced(broker, incoming, [*good, good[0][:7], struct.pack(">bI", 0, 8) + good[0][5:]])
    with here.runner() as runner:
        assert runner.run_once()
        assert not runner.run_once()  # there is nothing more to do
    found = [json.loads(value) for part in consumed_bytes(broker, outgoing) for value in part]
    for one in found:
        one["traded_at"] = datetime.fromisoformat(one["traded_at"])
        one["price"] = Decimal(one["price"])
    assert sorted(found, key=lambda one: int(one["trade_id"][1:])) == [*map(trade, range(40))]
    assert here.books.with_verdict("trades", "quarantined").num_rows == 2
