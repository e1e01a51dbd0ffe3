"""The connectors' jars work with the pinned Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from tapeline.broker import Broker
from tapeline.errors import OperationError
from tapeline.settings import Settings
from tapeline.spark.jvm import CONNECTORS
from tapeline.spark.session import build_session
from tests.support.kafka import produced

SCHEMA = {
    "type": "record",
    "name": "trade",
    "fields": [
        {"name": "trade_id", "type": "string"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 8},
        },
    ],
}


def test_spark_reads_a_topic_to_its_end_and_goes_on_there(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    seen: list[tuple[int, int, str]] = []

    def read_on() -> None:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            stream.select("partition", "offset", F.col("value").cast("string"))
            .writeStream.foreachBatch(lambda rows, _: seen.extend(map(tuple, rows.collect())))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    produced(broker, name, ["t1", "t2", "t3"])
    read_on()
    assert sorted(value for _, _, value in seen) == ["t1", "t2", "t3"]
    produced(broker, name, ["t4"])
    read_on()
    assert seen[3:] == [(seen[3][0], seen[3][1], "t4")]
    assert len({(partition, offset) for partition, offset, _ in seen}) == 4


def test_an_avro_record_keeps_its_exact_price(spark: SparkSession) -> None:
    price = "1234567890.12345678"
    rows = spark.sql(f"select 't1' as trade_id, cast('{price}' as decimal(18,8)) as price")
    schema = json.dumps(SCHEMA)
    coded = rows.select(to_avro(F.struct("trade_id", "price"), schema).alias("value"))
    (found,) = coded.select(from_avro("value", schema).alias("record")).select("record.*").collect()
    assert (found.trade_id, str(found.price)) == ("t1", price)


def test_a_running_session_that_lacks_a_connector_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert build_session(Settings(), connectors=["kafka", "avro"]) is spark
    monkeypatch.setitem(CONNECTORS, "kafka", ("delta-storage-",))  # a jar that nobody asked for
    with pytest.raises(OperationError, match="started Spark without delta-storage"):
        build_session(Settings(), connectors=["kafka"])
    monkeypatch.setenv("TAPELINE_JARS", str(tmp_path))
    with pytest.raises(OperationError, match=r"different from .*: delta-storage"):
        build_session(Settings(), connectors=["kafka"])
