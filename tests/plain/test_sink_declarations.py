"""Sinks: what can be declared, what is refused, and what is said of them."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from typer.testing import CliRunner

from tapeline import (
    Alerts,
    Changes,
    Console,
    DeclarationError,
    Each,
    Files,
    Kafka,
    OperationError,
    Pipeline,
    Rows,
    Stream,
)
from tapeline.books import Books
from tapeline.cli import app
from tapeline.formats.json import Json
from tapeline.operate.doctor import examine
from tapeline.plan import resolve
from tapeline.serve.feed import Feed
from tapeline.serve.metrics import metrics_of
from tapeline.settings import Settings


def small() -> Pipeline:
    pipeline = Pipeline("small")
    pipeline.source("raw", Files("landing/", schema="id string, amount int"))

    @pipeline.table(key="id")
    def rows(raw: Stream) -> object:
        return raw

    return pipeline


def test_a_sink_gives_its_function_back_and_is_part_of_the_plan() -> None:
    pipeline = small()

    @pipeline.sink(Kafka("out"))
    def notices(rows: Rows) -> Rows:
        """What came."""
        return [row for row in rows if row["amount"] > 1]

    assert notices([{"amount": 1}, {"amount": 2}]) == [{"amount": 2}]
    sink = resolve(pipeline).pipeline.sinks["notices"]
    assert (sink.reads, sink.kind, sink.about) == ("rows", "rows", "What came.")
    assert sink.connector.goes_to == "topic out"


def declared(connector: Any, function: Any) -> None:
    pipeline = small()
    pipeline.sink(connector)(function)
    resolve(pipeline)


def test_what_cannot_be_a_sink_is_refused_with_its_place() -> None:
    def of_rows(rows: Rows) -> Rows:
        return rows

    def of_changes(rows: Changes) -> Changes:
        return rows

    def of_stream(rows: Stream) -> object:
        return rows

    refused: list[tuple[Any, Any, str]] = [
        (Kafka(["one", "two"]), of_rows, "a sink writes to one topic"),
        (Kafka("one/3"), of_rows, "the message key selects the partition"),
        (Kafka("one", format="text"), of_rows, "a sink writes json or avro"),
        (Kafka("one", format="avro"), of_rows, "needs a schema file"),
        (Files("out/", format="text"), of_rows, "json, csv or parquet"),
        (Files("landing/"), of_rows, "its output would come in again"),
        (object(), of_rows, "which is not a destination"),
        (Console(), of_changes, "as Changes, of a summary or view, but it is not declared"),
        (Console(), of_stream, "a summary or view annotated as Changes, or an alert"),
    ]
    for connector, function, words in refused:
        with pytest.raises(DeclarationError, match=words) as error:
            declared(connector, function)
        assert "test_sink_declarations.py:" in str(error.value)


FILE = """
from tapeline import Files, Kafka, Pipeline, Rows, Stream

pipeline = Pipeline("small")
pipeline.source("raw", Files("landing/", schema="id string"))


@pipeline.table(key="id")
def rows(raw: Stream) -> object:
    return raw


@pipeline.sink(Kafka("out"))
def notices(rows: Rows) -> Rows:
    return rows
"""


def test_a_plan_shows_where_rows_go(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(FILE)
    done = CliRunner().invoke(app, ["plan", "pipeline.py", "--project", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    last = json.loads(done.stdout)[-1]
    assert (last["kind"], last["name"], last["reads"]) == ("sink", "notices", "rows, to topic out")


def test_a_topic_that_a_source_may_match_is_no_sink() -> None:
    pipeline = Pipeline("small")
    pipeline.source("raw", Kafka(re.compile("trades.*"), schema="id string"))

    @pipeline.table(key="id")
    def rows(raw: Stream) -> object:
        return raw

    @pipeline.sink(Kafka("trades.out"))
    def out(rows: Rows) -> Rows:
        return rows

    with pytest.raises(DeclarationError, match=r"out\(\) writes to the input of the source 'raw'"):
        resolve(pipeline)


def test_a_name_is_taken_once() -> None:
    pipeline = small()

    def rows(rows: Rows) -> Rows:
        return rows

    with pytest.raises(DeclarationError, match="'rows' is already used at"):
        pipeline.sink(Console())(rows)


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal",
                                    "precision": 12, "scale": 2}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}  # fmt: skip
ORDER = {"id": "o1", "amount": Decimal("12.50"), "at": datetime(2026, 11, 13, tzinfo=UTC)}


def encoder_of(kafka: Kafka, project: Path) -> Any:
    return kafka.records.written.for_sink(project, kafka.schemas).encode


def test_json_keeps_money_exact_and_avro_follows_its_schema(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    said = encoder_of(Kafka("out"), tmp_path)(ORDER)
    assert said == b'{"id":"o1","amount":"12.50","at":"2026-11-13T00:00:00Z"}'
    encode = encoder_of(Kafka("out", format="avro", schemas="order.avsc"), tmp_path)
    body = encode({**ORDER, "_sign": 1})
    assert fastavro.schemaless_reader(io.BytesIO(body), SCHEMA, None) == ORDER
    with pytest.raises(OperationError, match=r"AVRO: a row does not match the schema order.avsc"):
        encode({"id": "o1", "amount": "much", "at": None})
    with pytest.raises(DeclarationError, match="cannot be used"):
        encoder_of(Kafka("out", format="avro", schemas="absent.avsc"), tmp_path)


def test_doctor_and_metrics_know_a_sink_that_stands_still(tmp_path: Path) -> None:
    books = Books(resolve(small()), tmp_path)
    facts = {"to": "topic out", "messages": 3, "delivered_batch": 4, "lag_batches": 2}
    status = {
        "running": True, "pid": 1, "batch": 6, "failure": None, "problems": {},
        "sinks": {"error": {**facts, "problem": "KAFKA: nobody answers."},
                  "slow": {**facts, "problem": None},
                  "ok": {**facts, "lag_batches": 0, "problem": None}},
    }  # fmt: skip
    books.layout.status.write_text(json.dumps(status))
    found = {one.what: one for one in examine(books, Settings(), datetime.now(UTC))}
    states = {name: found[f"sink {name}"].state for name in ("error", "slow", "ok")}
    assert states == {"error": "error", "slow": "warning", "ok": "ok"}
    text = bytes(metrics_of(books, Feed(books, 1)).body).decode()
    assert 'tapeline_sink_batch{sink="slow"} 4.0' in text
    assert 'tapeline_sink_lag_batches{sink="slow"} 2.0' in text


def test_what_cannot_be_an_alert_is_refused_with_its_place() -> None:
    def of_rows(rows: Rows) -> bool:
        return bool(rows)

    def of_nothing(nothing: Each) -> bool:
        return bool(nothing)

    def of_each(rows: Each) -> bool:
        return bool(rows)

    def declare(function: Any, severity: Any) -> None:
        pipeline = small()
        pipeline.alert(severity)(function)
        resolve(pipeline)

    for function, severity, words in (
        (of_rows, "warning", "annotated as Each"),
        (of_nothing, "warning", "not a table, summary or view"),
        (of_each, "loud", "the severity 'loud'"),
    ):
        with pytest.raises(DeclarationError, match=rf"test_sink_declarations.py:\d+: .*{words}"):
            declare(function, severity)


def test_a_sink_of_an_alert_that_is_not_declared_is_refused() -> None:
    def pager(missing: Alerts) -> Alerts:
        return missing

    with pytest.raises(DeclarationError, match="Alerts, of an alert, but it is not declared"):
        declared(Console(), pager)


def test_a_sink_writes_json_that_every_reader_takes() -> None:
    row = {"price": Decimal("1.50"), "ratio": float("nan"), "inner": [float("-inf"), b"x"]}
    written = Json().encode(row)
    assert written == b'{"price":"1.50","ratio":"nan","inner":["-inf","x"]}'


class Own:
    """A destination of the user's own; `said` is what it answers, or raises."""

    goes_to = "a log"

    def __init__(self, said: str | Exception) -> None:
        self.said = said

    def open(self, sink: Any) -> None: ...

    def position(self) -> Any: ...

    def send(self, batches: Any) -> None: ...

    def close(self) -> None: ...

    def check(self, settings: Settings) -> str:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def test_doctor_asks_destinations_that_can_be_asked(tmp_path: Path) -> None:
    pipeline = small()
    down = OperationError("the log is on a disk that is away. Mount it.")
    for name, connector in {"good": Own("3 files"), "down": Own(down), "mute": Console()}.items():

        def sends(rows: Rows) -> Rows:
            return rows

        sends.__name__ = name
        pipeline.sink(connector)(sends)
    books = Books(resolve(pipeline), tmp_path / "books")
    found = {one.what: one for one in examine(books, Settings(), datetime.now(UTC))}
    assert found["destination of good"].state == "ok"
    assert found["destination of down"].state == "error"
    assert "Mount it" in found["destination of down"].words
    assert "destination of mute" not in found
