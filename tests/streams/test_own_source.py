"""A queue with acknowledgement as a source of one's own: a real MQTT broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapeline.plan import load_pipeline
from tapeline.settings import Settings, activate
from tapeline.testing import Crash, Deployment, crash_at
from tests.support.doc_pages import REPOSITORY, blocks
from tests.support.mqtt import MqttBroker
from tests.support.waiting import wait_for

PIPELINE = """
from mqtt_source import Mqtt
from pyspark.sql import DataFrame, functions as F
from tapeline import Own, Pipeline, Stream

pipeline = Pipeline("calls")
source = Mqtt("127.0.0.1", PORT, "calls", "tapeline")
pipeline.source("raw", Own(source, schema="id string not null, seconds int not null"))


@pipeline.table(key="id")
def calls(raw: Stream) -> DataFrame:
    return raw


@pipeline.summary(key=["all"])
def spoken(calls: Stream) -> DataFrame:
    return calls.groupBy(F.lit("all").alias("all")).agg(F.sum("seconds").alias("seconds"))
"""


@pytest.fixture
def mqtt(tmp_path: Path) -> Iterator[MqttBroker]:
    broker = MqttBroker(tmp_path / "mqtt")
    broker.start()
    broker.subscribe("calls", "tapeline")
    yield broker
    broker.stop()


@pytest.fixture
def deployment(
    tmp_path: Path, mqtt: MqttBroker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployment]:
    """The module as docs/extend.md shows it, and a pipeline that uses it."""
    shown = [block.text for block in blocks(REPOSITORY / "docs" / "extend.md")]
    (text,) = [one for one in shown if one.startswith('"""mqtt_source.py')]
    (tmp_path / "mqtt_source.py").write_text(text)
    (tmp_path / "pipeline.py").write_text(PIPELINE.replace("PORT", str(mqtt.port)))
    monkeypatch.syspath_prepend(tmp_path)
    settings = Settings(project=tmp_path, root=tmp_path / "books")
    yield Deployment(load_pipeline("pipeline.py", settings), settings)
    sys.modules.pop("mqtt_source", None)
    activate(Settings())


def call(number: int) -> bytes:
    return json.dumps({"id": f"c{number}", "seconds": number}).encode()


def spoken(deployment: Deployment) -> int:
    (row,) = deployment.read("spoken")
    return int(row["seconds"])


def test_a_message_is_acknowledged_only_after_its_row_of_the_tape_is_decided(
    deployment: Deployment, mqtt: MqttBroker, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mqtt.send("calls", [call(number) for number in range(50)])
    from tapeline.books.tape import Tape

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:  # nothing is decided, so nothing may be acknowledged
        broken.setattr(Tape, "append", full)
        with pytest.raises(Exception, match="No space left"):
            deployment.run_once()
    with crash_at("tape_decided"), pytest.raises(Crash):  # decided, and not acknowledged
        deployment.run_once()
    mqtt.stop()
    mqtt.start()  # it owes every message that was not acknowledged
    mqtt.send("calls", [b"not a call", call(50)])
    deployment.run_once()
    assert spoken(deployment) == sum(range(51))
    verdicts = deployment.books.totals()["calls"].verdicts
    assert verdicts["kept"] == 51
    assert verdicts["quarantined"] == 1
    assert verdicts["duplicate"] >= 1  # of the decided row, whose acknowledgement was lost
    assert deployment.unbalanced() == []
    before = deployment.books.cut().batch
    deployment.run_once()  # the broker owes nothing any more
    assert deployment.books.cut().batch == before


def test_a_live_run_opens_a_source_again_that_went_away(
    deployment: Deployment, mqtt: MqttBroker, spark: Any
) -> None:
    with deployment.running():
        mqtt.send("calls", [call(number) for number in range(20)])
        wait_for(lambda: bool(deployment.read("spoken")) and spoken(deployment) == sum(range(20)))
        mqtt.stop()
        mqtt.start()
        mqtt.send("calls", [call(number) for number in range(20, 30)])
        wait_for(lambda: spoken(deployment) == sum(range(30)))
    assert deployment.unbalanced() == []
