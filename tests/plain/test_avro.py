"""Avro, record by record: by its writer's schema, and out of container files."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeline import DeclarationError, Kafka, OperationError
from tapeline.connect.kafka_schemas import schemas_of
from tapeline.declare import parse_schema
from tapeline.declare.format import FileLimits, Schemas
from tapeline.formats.avro import AvroReader
from tapeline.formats.avro_files import avro_records
from tapeline.formats.avro_schemas import avro_schema
from tapeline.formats.schemas import SingleSchema
from tapeline.settings import KafkaSettings, Settings
from tests.support.avro import container, schema, written
from tests.support.schema_registry import registry

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 8}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
PLENTY = FileLimits(10**6, 10**6, 10**6)


def read(by: dict[str, Any], raw: bytes, declared: str) -> Any:
    reader = AvroReader(SingleSchema(json.dumps(by)), parse_schema(declared))
    return json.loads(reader.read(raw, None))


def found(kafka: Kafka, settings: Settings) -> Schemas:
    return schemas_of("Kafka(topic t)", kafka.schemas, settings, "p")


def test_values_are_exact() -> None:
    by = schema(id="string", price=MONEY, at=MOMENT, day={"type": "int", "logicalType": "date"},
                rate="double", data="bytes", side={"type": "enum", "name": "S", "symbols": ["BUY"]},
                note=["null", "string"])  # fmt: skip
    row = {"id": "t1", "price": Decimal("0.00000001"), "rate": 1e-7, "data": b"\xff", "side": "BUY",
           "at": datetime(2026, 11, 13, 10, 5, 0, 1, UTC), "day": date(2026, 11, 13),
           "note": None}  # fmt: skip
    found = read(by, written(by, row), "id string, price decimal(18,8), rate decimal(18,8)")
    assert found == {
        "id": "t1", "price": "0.00000001", "at": "2026-11-13T10:05:00.000001+00:00",
        "day": "2026-11-13", "rate": "0.0000001", "data": "/w==", "side": "BUY", "note": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "declared", "fits"),
    [
        ("int", "bigint", True),
        ("long", "double", True),
        ("float", "double", True),
        ("string", "decimal(18,8)", True),
        ("string", "date", True),
        (["null", MONEY], "decimal(18,8)", True),
        ({"type": "int", "logicalType": "time-millis"}, "string", True),
        ("long", "int", False),
        ("double", "bigint", False),
        ("int", "string", False),
        ("boolean", "decimal(18,8)", False),
        ("long", "timestamp", False),
        ("string", "array<string>", False),
    ],
)
def test_a_field_may_be_promoted_and_not_retyped(kind: Any, declared: str, fits: bool) -> None:
    by = schema(x=kind)
    values: dict[str, Any] = {"string": "1.5", "boolean": True, "double": 2.0, "float": 2.0}
    value = values.get(kind, 2) if isinstance(kind, str) else Decimal(2)
    value = time(9, 30) if isinstance(kind, dict) else value
    raw = written(by, {"x": value})
    found = read(by, raw, f"x {declared}")
    if fits:
        assert found["x"] in ("1.5", "2.00000000", 2, "09:30:00")
    else:
        assert found == {"x": None, "_retyped": {"x": kind}}


def test_bytes_of_another_schema_are_no_record() -> None:
    by = schema(id="string", amount="long")
    raw = written(by, {"id": "t1", "amount": 5})
    for broken, reason in [
        (raw + b"x", "bytes are left over\x1e1 byte"),
        (raw[:-1], "not Avro of its schema"),
        (b"", "not Avro of its schema"),
        (b"\xff" * 20, "not Avro of its schema"),
        (b"\x04\xff\xfe\x02", "not Avro of its schema"),  # a text that is not UTF-8
    ]:
        with pytest.raises(ValueError, match=reason):
            read(by, broken, "id string")


@pytest.mark.parametrize(
    ("items", "safe"),
    [
        ("string", True),
        (["null", "string"], True),
        ("null", False),
        ({"type": "record", "name": "Empty", "fields": []}, False),
        ({"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}, False),
        ({"type": "fixed", "name": "None", "size": 0}, False),
        ({"type": "array", "items": "null"}, False),
    ],
)
def test_a_schema_by_which_few_bytes_are_billions_of_values_is_refused(
    items: Any, safe: bool
) -> None:
    by = schema(x={"type": "array", "items": items}, y="int")
    if safe:
        assert avro_schema(json.dumps(by))
        return
    with pytest.raises(ValueError, match="values that take no bytes"):
        avro_schema(json.dumps(by))


def test_a_schema_that_holds_itself_is_refused_before_it_is_read_by() -> None:
    for kind in (["null", "Trade"], {"type": "map", "values": "Trade"}):
        with pytest.raises(ValueError, match="'Trade' holds itself"):
            read(schema(next=kind), b"\x02" * 1_000_000, "id string")
    deep = "[" * 100_000
    with pytest.raises(ValueError, match="a schema that is not Avro's"):
        avro_schema(deep)
    nested: Any = "string"
    for _ in range(200):
        nested = {"type": "array", "items": nested}
    with pytest.raises(ValueError, match="not Avro of its schema"):
        read(schema(x=nested), b"\x02" * 300, "id string")


def test_the_id_of_a_message_finds_its_schema_in_a_folder(tmp_path: Path) -> None:
    by = schema(id="string")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "7.avsc").write_text(json.dumps(by))
    kafka = Kafka("t", format="avro", schema="id string", schemas="schemas")
    reader = AvroReader(found(kafka, Settings(project=tmp_path)), kafka.fields)
    body = written(by, {"id": "t1"})
    assert json.loads(reader.read(b"\0" + struct.pack(">I", 7) + body, None)) == {"id": "t1"}
    with pytest.raises(ValueError, match="the folder 'schemas' does not have\x1eschema 8"):
        reader.read(b"\0" + struct.pack(">I", 8) + body, None)
    with pytest.raises(ValueError, match="without a schema's id"):
        reader.read(b"\1" + body, None)
    (tmp_path / "schemas" / "8.avsc").write_text(json.dumps(by))
    assert reader.begin().read(b"\0" + struct.pack(">I", 8) + body, None)


def test_a_registry_is_asked_once_and_then_not_needed(tmp_path: Path) -> None:
    by = schema(id="string")
    kafka = Kafka("t", format="avro", schema="id string")
    raw = b"\0" + struct.pack(">I", 3) + written(by, {"id": "t1"})
    unknown = b"\0" + struct.pack(">I", 4) + written(by, {"id": "t1"})
    with registry({3: by}) as (address, asked):
        settings = Settings(project=tmp_path, kafka=KafkaSettings(registry=address))
        reader = AvroReader(found(kafka, settings), kafka.fields)
        assert [json.loads(reader.read(raw, None)) for _ in range(3)] == [{"id": "t1"}] * 3
        for _ in range(2):
            with pytest.raises(ValueError, match="the registry does not have\x1eschema 4"):
                reader.read(unknown, None)
        assert asked == ["/schemas/ids/3", "/schemas/ids/4"]
    later = AvroReader(found(kafka, settings), kafka.fields)
    assert json.loads(later.read(raw, None)) == {"id": "t1"}
    with pytest.raises(OperationError, match=r"the schema registry .* did not return schema 4"):
        later.read(unknown, None)


def test_avro_on_a_topic_without_schemas_is_refused(tmp_path: Path) -> None:
    kafka = Kafka("t", format="avro", schema="id string")
    with pytest.raises(DeclarationError, match="the Avro schema is unknown"):
        found(kafka, Settings(project=tmp_path))
    with pytest.raises(DeclarationError, match="'schemas' is only for Avro"):
        Kafka("t", schema="id string", schemas="x.avsc")


EVERYTHING = schema(
    id="string", price=MONEY, at=MOMENT, rate="double", many={"type": "array", "items": "long"},
    named={"type": "map", "values": ["null", "bytes", "int"]}, ok="boolean",
    clock={"type": "int", "logicalType": "time-millis"}, day={"type": "int", "logicalType": "date"},
    uuid={"type": "string", "logicalType": "uuid"},
)  # fmt: skip
READER = AvroReader(SingleSchema(json.dumps(EVERYTHING)), parse_schema("id string, ok int"))


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_record_or_a_reason(noise: bytes) -> None:
    for raw in (noise, b"\x02a" + noise, b"\x02a\x02\x01\x02" + noise):
        try:
            assert json.loads(READER.read(raw, None))["_retyped"] == {"ok": "boolean"}
        except ValueError as error:
            assert "not Avro of its schema" in str(error)  # noqa: PT017


@given(st.binary(max_size=200), st.integers(0, 400), st.sampled_from(["null", "deflate"]))
def test_a_damaged_container_is_refused_or_read(noise: bytes, place: int, codec: str) -> None:
    whole = container(schema(id="string"), [{"id": "x"}] * 50, codec).getvalue()
    try:
        list(avro_records(io.BytesIO(whole[:place] + noise), PLENTY, lambda _: None))
    except ValueError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_container_gives_the_bytes_of_each_record(codec: str) -> None:
    by = schema(id="string", amount="long")
    rows = [{"id": f"t{n}", "amount": n} for n in range(5_000)]
    told: list[bytes] = []
    found = [one for some in avro_records(container(by, rows, codec), PLENTY, told.append)
             for one in some]  # fmt: skip
    assert found == [written(by, row) for row in rows]
    assert json.loads(told[0])["fields"] == by["fields"]


def test_a_container_that_is_not_sound_is_refused() -> None:
    by = schema(id="string")
    whole = container(by, [{"id": "x" * 100}] * 2_000, "deflate").getvalue()
    for broken in (whole[:-1], whole[: len(whole) // 2], whole[:20], whole + b"\x80"):
        with pytest.raises(ValueError, match=r"."):
            list(avro_records(io.BytesIO(broken), PLENTY, lambda _: None))
    with pytest.raises(ValueError, match="unpacks to more than 1,000 bytes"):
        list(avro_records(io.BytesIO(whole), FileLimits(1_000, 10**6, 10**6), lambda _: None))
