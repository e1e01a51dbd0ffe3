"""From Avro files, Avro messages and FIX logs to the books: real intake, broker and Spark."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Kafka, Pipeline, Stream
from tapeline.broker import Broker
from tapeline.settings import KafkaSettings
from tapeline.testing import Books
from tapeline.trades.fix import pipeline as fix_pipeline
from tests.support.avro import container, schema, written
from tests.support.fix import FILL_44, message
from tests.support.kafka import produced
from tests.support.orders import Make, kafka_of, stand
from tests.support.schema_registry import registry

ORDER = "id string not null, item string, amount bigint not null"
FIRST = schema(id="string", item="string", amount="int")
SECOND = schema(item="string", id="string", amount="long", venue=["null", "string"])


def orders_of(topic: str) -> Pipeline:
    pipeline = Pipeline("orders")
    pipeline.source("messages", Kafka(topic, format="avro", schema=ORDER))
    pipeline.source("records", Files("avro/", format="avro", schema=ORDER, new_fields="keep"))

    @pipeline.table(key="id")
    def orders(messages: Stream) -> DataFrame:
        return messages

    @pipeline.summary(key="item")
    def totals(orders: Stream) -> DataFrame:
        sums = F.sum("amount").alias("amount"), F.count("*").alias("n")
        return orders.groupBy("item").agg(*sums)

    @pipeline.table(key="id")
    def filed(records: Stream) -> DataFrame:
        return records

    return pipeline


def test_avro_of_a_registry_and_of_containers_comes_into_the_books(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    name = topic(2)
    sent: list[tuple[int, dict[str, Any]]] = []
    for n in range(300):
        row = {"id": f"o{n}", "item": ("tea", "mate")[n % 2], "amount": n, "venue": None}
        sent.append((1 + n % 3 // 2, row))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, row in sent:
        by = (FIRST, SECOND)[number - 1]
        fields = {field["name"] for field in by["fields"]}
        body = written(by, {key: row[key] for key in fields})
        producer.produce(name, b"\0" + number.to_bytes(4, "big") + body)
    producer.produce(name, b"\0" + (77).to_bytes(4, "big") + b"x")
    producer.produce(name, b"{}")
    assert producer.flush(60) == 0
    (tmp_path / "avro").mkdir()
    rows = [{"id": f"f{n}", "item": "tea", "amount": n, "venue": "V"} for n in range(2_500)]
    (tmp_path / "avro" / "new.avro").write_bytes(container(SECOND, rows, "deflate").getvalue())
    (tmp_path / "avro" / "old.avro").write_bytes(
        container(FIRST, [{"id": "first", "item": "tea", "amount": 1}]).getvalue()
    )
    (tmp_path / "avro" / "half.avro").write_bytes(container(SECOND, rows).getvalue()[:-300])
    with registry({1: FIRST, 2: SECOND}) as (address, _):
        here = stand(orders_of(name), tmp_path, kafka_of(broker, registry=address))
        here.run_once()
    books = here.books
    amounts: Counter[str] = Counter()
    for _, row in sent:
        amounts[row["item"]] += row["amount"]
    found = {r["item"]: (r["amount"], r["n"]) for r in books.read("totals").to_pylist()}
    assert found == {item: (amount, 150) for item, amount in amounts.items()}
    assert books.totals()["orders"].verdicts == {"kept": 300, "quarantined": 2}
    assert books.totals()["filed"].verdicts == {"kept": 2_501}
    filed = {row["id"]: row for row in books.read("filed").to_pylist()}
    assert filed["f7"]["new_fields"] == '{"venue":"V"}'
    assert filed["first"]["new_fields"] is None
    findings = (here.settings.home("orders") / "intake" / "records" / "findings.jsonl").read_text()
    assert "REJECTED" in findings
    assert "half.avro" in findings
    assert "a block does not end with its mark" in findings
    assert here.unbalanced() == []


def test_csv_lines_and_fix_reports_of_topics_come_into_the_books(
    broker: Broker, topic: Make, tmp_path: Path, spark: Any
) -> None:
    lines, reports = topic(1), topic(1)
    pipeline = Pipeline("both")
    pipeline.source("lines", Kafka(lines, format="csv", schema=ORDER))
    pipeline.source("reports", Kafka(reports, format="fix"))

    @pipeline.table(key="id")
    def orders(lines: Stream) -> DataFrame:
        return lines

    @pipeline.table(
        key=["sender", "trade_id"], sequence_by="version", apply_as_deletes="action = 'CANCEL'"
    )
    def fills(reports: Stream) -> DataFrame:
        return reports.filter(F.col("action").isNotNull())

    fill = {**FILL_44, 17: "e1"}
    other = {**FILL_44, 17: "e2", 32: "5"}
    said = [
        message(fill),
        message({**fill, 35: "D"}),  # an order
        message({**fill, 150: "4", 17: "e9"}),  # a cancelled order
        message(other),
        message({**other, 34: "8", 150: "G", 17: "e3", 19: "e2", 32: "7"}),  # the fill e2 was of 7
        message({**fill, 34: "9", 150: "H", 17: "e4", 19: "e1"}),  # the fill e1 never was
        message({**fill, 17: "e5"}).replace(b"100", b"900"),  # its checksum is another's
    ]
    produced(broker, reports, said)
    produced(broker, lines, ["o1,tea,5", "o2,mate,7", "o3,tea,many", "o4,tea", "o1,tea,5"])
    here = stand(pipeline, tmp_path, broker)
    here.run_once()
    books = here.books
    kept = {row["id"]: row["amount"] for row in books.read("orders").to_pylist()}
    assert kept == {"o1": 5, "o2": 7}
    assert books.totals()["orders"].verdicts == {"kept": 2, "duplicate": 1, "quarantined": 2}
    standing = {row["trade_id"]: row["quantity"] for row in books.read("fills").to_pylist()}
    assert standing == {"e2": 7}
    verdicts = books.totals()["fills"].verdicts
    assert verdicts == {"kept": 1, "superseded": 2, "applied": 1, "dropped": 2, "quarantined": 1}
    assert here.unbalanced() == []


NAMES = ["ireach.fix44.log", "montran.fix44.log", "KOD-BON.fix42.log", "delimitertest.log",
         "murex-360t.fix44.body"]  # fmt: skip
EDITED = ["fix2json-100FIX42.dat", "quickfix-logviewer-tmp.fix42.log"]  # checksums no more right
BUSTED = datetime(2020, 3, 3, 12, 45, tzinfo=UTC)  # of its one fill the log has the bust, too


def test_the_logs_of_real_systems_give_their_known_windows(
    tmp_path: Path, spark: Any, shared: Path
) -> None:
    logs = shared / "fix_logs"
    (tmp_path / "fix").mkdir()
    for name in [*NAMES, *EDITED]:
        shutil.copy(logs / name, tmp_path / "fix")
    here = stand(fix_pipeline, tmp_path, KafkaSettings())
    here.run_once()
    books = here.books
    expected = known(logs)
    assert expected.pop(BUSTED) == (Decimal(4625), Decimal(0), 1)
    assert windows(books) == expected
    damaged = json.loads((logs / "stats.json").read_text())
    verdicts = books.totals()["fills"].verdicts
    lines = [line for name in [*NAMES, *EDITED] for line in (logs / name).read_bytes().splitlines()]
    records = sum(max(1, line.count(b"8=FIX")) for line in lines if line.strip())
    assert sum(verdicts.values()) == records
    del verdicts["dropped"]  # orders, cancels, rejects, heartbeats, remarks
    assert verdicts == {
        "kept": sum(fills for _, _, fills in expected.values()),
        "applied": 1,
        "superseded": 1,
        "quarantined": sum(damaged[name]["bad_checksum"] for name in [*NAMES, *EDITED]),
    }
    assert here.unbalanced() == []


def known(logs: Path) -> dict[datetime, tuple[Decimal, Decimal, int]]:
    """What is known of the logs whose messages are sound, over all currencies."""
    with (logs / "golden.csv").open(encoding="utf-8") as file:
        return {
            datetime.fromisoformat(row["window_start_utc"]): (
                Decimal(row["total_buy"]), Decimal(row["total_sell"]), int(row["fill_count"])
            )
            for row in csv.DictReader(file)
            if row["log"] in NAMES
        }  # fmt: skip


def windows(books: Books) -> dict[datetime, tuple[Decimal, Decimal, int]]:
    total: dict[datetime, tuple[Decimal, Decimal, int]] = {}
    for row in books.read("fill_summary").to_pylist():
        bought, sold, fills = total.get(row["window_start"], (Decimal(0), Decimal(0), 0))
        total[row["window_start"]] = (
            bought + row["total_buy"], sold + row["total_sell"], fills + row["fills"]
        )  # fmt: skip
    return total
