"""Every format through the real engine, old and new records mixed in one batch."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame

from tapeline import Files, Kafka, Pipeline, Stream
from tapeline.books import Layout
from tapeline.books.quarantine import QuarantineFilter, quarantined
from tapeline.books.reasons import reason
from tapeline.formats.avro_schemas import keep_schema
from tapeline.testing import Trial
from tapeline.trades.fix import pipeline as fix_pipeline
from tests.support.fix import FILL_42, FILL_44, message

ROW = "id string not null, amount decimal(10,2) not null, note string"
OLD = {"type": "record", "name": "Row", "fields": [
    {"name": "id", "type": "string"}, {"name": "amount", "type": "int"}]}  # fmt: skip
NEW = {"type": "record", "name": "Row", "fields": [
    {"name": "venue", "type": ["null", "string"]}, {"name": "id", "type": "string"},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10,
                                "scale": 2}},
    {"name": "note", "type": ["null", "string"]}]}  # fmt: skip
LACKING = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "string"}]}
RETYPED = {"type": "record", "name": "Row", "fields": [
    {"name": "id", "type": "string"}, {"name": "amount", "type": "boolean"}]}  # fmt: skip
SCHEMAS = {1: OLD, 2: NEW, 3: LACKING, 4: RETYPED}


def declare() -> Pipeline:
    pipeline = Pipeline("formats")
    avro = Kafka("a", format="avro", schema=ROW, schemas="schemas", new_fields="keep")
    sources = {
        "json": Files("json/", schema=ROW),
        "json_kept": Files("json_kept/", schema=ROW, new_fields="keep"),
        "csv_kept": Files("csv_kept/", format="csv", schema=ROW, new_fields="keep"),
        "lines": Kafka("l", format="csv", schema=ROW),
        "lines_kept": Kafka("k", format="csv", schema=ROW, new_fields="keep"),
        "avro": avro,
        "container": Files("avro/", format="avro", schema=ROW),
    }
    for name, connector in sources.items():
        pipeline.source(f"raw_{name}", connector)

    # A step's parameter names what it reads, so each has its own function.
    @pipeline.table(key="id")
    def json_rows(raw_json: Stream) -> DataFrame:
        return raw_json

    @pipeline.table(key="id")
    def json_kept_rows(raw_json_kept: Stream) -> DataFrame:
        return raw_json_kept

    @pipeline.table(key="id")
    def csv_kept_rows(raw_csv_kept: Stream) -> DataFrame:
        return raw_csv_kept

    @pipeline.table(key="id")
    def lines_rows(raw_lines: Stream) -> DataFrame:
        return raw_lines

    @pipeline.table(key="id")
    def lines_kept_rows(raw_lines_kept: Stream) -> DataFrame:
        return raw_lines_kept

    @pipeline.table(key="id")
    def avro_rows(raw_avro: Stream) -> DataFrame:
        return raw_avro

    @pipeline.table(key="id")
    def container_rows(raw_container: Stream) -> DataFrame:
        return raw_container

    return pipeline


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("formats")
    (folder / "schemas").mkdir()
    for number, schema in SCHEMAS.items():
        (folder / "schemas" / f"{number}.avsc").write_text(json.dumps(schema))
    trial = Trial(declare(), folder)
    yield trial
    trial.close()


def kept(trial: Trial, table: str) -> dict[str, Decimal]:
    return {row["id"]: row["amount"] for row in trial.read(table)}


def new_fields(trial: Trial, table: str) -> dict[str, Any]:
    found = {row["id"]: row["new_fields"] for row in trial.read(table)}
    return {name: text and json.loads(text) for name, text in found.items()}


def reasons(trial: Trial, table: str) -> list[list[str]]:
    rows = trial.quarantine(table)
    rows.sort(key=lambda row: (row["_position"]["part"], row["_position"]["at"]))
    return [row["_reasons"] for row in rows]


def written(number: int, row: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, SCHEMAS[number], row)
    return b"\0" + struct.pack(">I", number) + file.getvalue()


MISSING = "amount is missing: it is declared decimal(10,2) not null"
JSON = [
    {"id": "old", "amount": 5},
    {"id": "new", "amount": "5.25", "venue": "XNAS", "legs": [1, {"x": None}]},
    {"id": "lacking"},
    {"id": "null", "amount": None},
    {"id": "retyped", "amount": True},
    '{"id": "twice", "amount": 1, "venue": "A", "venue": "B"}',
]


def test_json_fields_may_be_added_and_not_taken_away(trial: Trial) -> None:
    trial.feed(raw_json=JSON, raw_json_kept=JSON)
    for table in ("json_rows", "json_kept_rows"):
        assert kept(trial, table) == {
            "old": Decimal(5), "new": Decimal("5.25"), "twice": Decimal(1)
        }  # fmt: skip
        assert reasons(trial, table) == [
            [MISSING], [MISSING], ["amount is not a plain decimal number"]
        ]  # fmt: skip
    found = new_fields(trial, "json_kept_rows")
    assert found["old"] is None
    assert found["new"] == {"venue": "XNAS", "legs": '[1,{"x":null}]'}
    assert found["twice"]["venue"] in ("A", "B")


def test_csv_columns_may_be_added_and_not_taken_away(trial: Trial) -> None:
    trial.feed("id,amount,note", raw_csv_kept=["old,5,", "lacking,,x", "retyped,five,"])
    trial.feed(
        "id,venue,amount,Note,venue",
        raw_csv_kept=['new,XNAS,5.25,"a, ""b""",q', "wide,X,1,n,q,more"],
    )
    trial.feed("id,note", raw_csv_kept=["gone,x"])
    assert kept(trial, "csv_kept_rows") == {"old": Decimal(5), "new": Decimal("5.25")}
    found = [reason for one in trial.quarantine("csv_kept_rows") for reason in one["_reasons"]]
    assert sorted(found) == [
        MISSING,
        "amount is not a plain decimal number",
        "the file has no column 'amount'",
        "the row has another number of columns than the header, or a broken quote",
    ]
    rows = {row["id"]: row for row in trial.read("csv_kept_rows")}
    assert rows["new"]["note"] == 'a, "b"'
    assert rows["new"]["new_fields"] == '{"venue":"XNAS","venue":"q"}'
    assert rows["old"]["new_fields"] is None


def test_a_csv_message_is_one_line_of_the_declared_columns(trial: Trial) -> None:
    lines = ["old,5,note", 'new,5.25,note,XNAS,"a ""b"""', "lacking,5", "empty,,x"]
    trial.feed(raw_lines=lines, raw_lines_kept=lines)
    count = "the message has another number of columns than 3, or a broken quote"
    assert kept(trial, "lines_rows") == {"old": Decimal(5)}
    assert reasons(trial, "lines_rows") == [[count], [count], [MISSING]]
    assert new_fields(trial, "lines_kept_rows") == {
        "old": None, "new": {"column_4": "XNAS", "column_5": 'a "b"'}
    }  # fmt: skip
    assert reasons(trial, "lines_kept_rows") == [[count], [MISSING]]


def test_avro_messages_are_read_by_the_schema_they_were_written_with(trial: Trial) -> None:
    good = written(2, {"venue": "XNAS", "id": "new", "amount": Decimal("5.25"), "note": "n"})
    later = written(2, {"venue": "XNAS", "id": "later", "amount": Decimal(9), "note": None})
    trial.feed(
        raw_avro=[
            written(1, {"id": "old", "amount": 5}),
            good,
            written(2, {"venue": None, "id": "same", "amount": Decimal(1), "note": None}),
            written(3, {"id": "lacking"}),
            written(4, {"id": "retyped", "amount": True}),
            b"\0" + struct.pack(">I", 9) + later[5:],
            good[:-1],
            good + b"\0",
            b"plain text",
            good,
        ]
    )
    assert kept(trial, "avro_rows") == {
        "old": Decimal(5), "new": Decimal("5.25"), "same": Decimal(1)
    }  # fmt: skip
    assert new_fields(trial, "avro_rows")["new"] == {"venue": "XNAS"}
    assert trial.verdicts("avro_rows") == {"kept": 3, "quarantined": 6, "duplicate": 1}
    lacking, retyped, *unreadable = reasons(trial, "avro_rows")
    assert lacking == [MISSING]
    assert retyped == ["amount is declared decimal(10,2), it came as boolean"]
    expected = [
        reason("the record is of a schema that the folder 'schemas' does not have", "schema 9"),
        "the record is not Avro of its schema: EOFError",
        reason("the record is not Avro of its schema: bytes are left over", "1 byte"),
        "the record is without a schema's id: it does not begin with a zero byte and 4 more",
    ]
    assert [one[0] for one in unreadable] == expected
    raw = [row["_raw"] for row in trial.quarantine("avro_rows")]
    assert b"plain text" in raw
    assert good[:-1] in raw
    # The schema comes after all, and an operator sends the record again.
    (trial.settings.project / "schemas" / "9.avsc").write_text(json.dumps(NEW))
    trial.redrive(table="avro_rows")
    assert kept(trial, "avro_rows")["later"] == Decimal(9)
    assert trial.verdicts("avro_rows") == {"kept": 4, "quarantined": 5, "duplicate": 1}


def test_records_of_a_container_are_read_by_its_schema(trial: Trial) -> None:
    old = written(1, {"id": "old", "amount": 5})[5:]
    new = written(2, {"venue": "X", "id": "new", "amount": Decimal("5.25"), "note": None})[5:]
    folder = Layout(trial.settings.home("formats")).schemas
    names = [keep_schema(folder, json.dumps(one).encode()) for one in (OLD, NEW)]
    trial.put("raw_container", [old], names[0])
    trial.put("raw_container", [new], names[1])
    trial.advance()
    assert kept(trial, "container_rows") == {"old": Decimal(5), "new": Decimal("5.25")}


MESSAGES = [
    message(FILL_44),
    message({**FILL_44, 43: "Y", 52: "20261113-11:00:00", 122: FILL_44[52]}),  # sent again
    message({**FILL_44, 34: "8", 150: "G", 17: "e2", 19: "e1", 32: "80"}),
    message({**FILL_42, 34: "9", 17: "e3", 54: "5", 32: "10", 31: "2.5"}, "FIX.4.2", "|"),
    message({**FILL_42, 34: "11", 20: "1", 150: "0", 17: "e5", 19: "e4"}, "FIX.4.2"),  # bust first
    message({**FILL_42, 34: "10", 17: "e4", 32: "7"}, "FIX.4.2"),
    message({**FILL_44, 34: "12", 150: "0", 17: "e6"}),  # an order is accepted
    message({35: "D", 34: "13", 49: "US", 52: "x", 56: "B", 38: "many", 44: "cheap"}),  # an order
    b"10:06 session ended",
    message({**FILL_44, 34: "14", 17: "e7"}).replace(b"32=100", b"32=900"),
    message({**FILL_44, 34: "15", 17: "e8", 31: "1e3"}),
    message({**FILL_44, 34: "16", 150: "H", 17: "e9"}),  # a bust that names no fill
]


def test_fix_fills_corrections_and_busts_are_books(tmp_path: Path, spark: Any) -> None:
    trial = Trial(fix_pipeline, tmp_path)
    for record in MESSAGES:
        trial.put("raw_messages", [record])
    trial.advance()
    (row,) = trial.read("fill_summary")
    assert (row["total_buy"], row["total_sell"], row["fills"]) == (Decimal(740), Decimal(25), 2)
    assert trial.verdicts("fills") == {
        "kept": 2, "superseded": 2, "duplicate": 1, "applied": 1, "dropped": 3, "quarantined": 3
    }  # fmt: skip
    damaged, number, nameless = reasons(trial, "fills")
    assert damaged[0].startswith("the record is damaged: its CheckSum (10) is wrong\x1eit says")
    assert number[0] == "price is not a plain decimal number"
    assert nameless == ["the key is missing: sender, trade_id"]
    trial.close()


def test_fix_messages_with_a_wrong_checksum_or_length_can_count_with_a_warning(
    tmp_path: Path, spark: Any
) -> None:
    pipeline = Pipeline("lenient")
    pipeline.source("raw", Files("log/", format="fix", fix_checks="warn"))

    @pipeline.table(key="trade_id", time="traded_at")
    def fills(raw: Stream) -> DataFrame:
        return raw.filter("action is not null")

    trial = Trial(pipeline, tmp_path)
    trial.feed(
        raw=[
            message(FILL_44),
            message({**FILL_44, 17: "e2"}).replace(b"32=100", b"32=900"),
            message({**FILL_44, 17: "e3"}).replace(b"32=100", b"32=1900"),
            message({**FILL_44, 17: "e4"})[:-8],
        ]
    )
    assert trial.verdicts("fills") == {"kept": 3, "quarantined": 1}
    assert trial.books.totals()["fills"].warnings == {
        "damaged: its CheckSum (10) is wrong": 2,
        "damaged: its BodyLength (9) is wrong": 1,
    }
    assert {row["quantity"] for row in trial.read("fills")} == {100, 900, 1900}


def test_reasons_are_few_and_say_their_numbers_beside_them(tmp_path: Path, spark: Any) -> None:
    trial = Trial(fix_pipeline, tmp_path)
    for number in range(3):
        sound = message({**FILL_44, 34: str(20 + number), 17: f"e{number}"})
        trial.put("raw_messages", [sound.replace(b"32=100", b"32=%d" % (number + 500))])
    trial.flow.advance()
    damaged = "the record is damaged: its CheckSum (10) is wrong"
    assert trial.books.totals()["fills"].reasons == {damaged: 3}
    rows = quarantined(trial.books, QuarantineFilter(reason="checksum"))
    assert {tuple(row["reasons"]) for row in rows} == {(damaged,)}
    assert len({row["details"][0] for row in rows}) == 3
    told = trial.books.with_verdict("fills", "quarantined").to_pylist()
    assert told[0]["_reasons"][0].startswith(f"{damaged}: it says ")
