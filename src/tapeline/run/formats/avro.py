"""Avro records as JSON: by the schema they were written with, field by field by name."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro

from tapeline.declare import Field
from tapeline.run.decode import RETYPED
from tapeline.run.formats.schemas import Schemas
from tapeline.run.intake.containers import BROKEN, avro_schema
from tapeline.run.intake.rows import json_line

# Which of Avro's types may stand behind a declared one: its own, what Avro promotes to it, and the
# text of a number or a time, which is exact.
MOMENTS = {
    "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros",
}  # fmt: skip
READS = {
    "string": {"string", "enum", "uuid", "time-millis", "time-micros"},
    "boolean": {"boolean"},
    "tinyint": {"int"},
    "smallint": {"int"},
    "int": {"int"},
    "bigint": {"int", "long"},
    "float": {"int", "long", "float"},
    "double": {"int", "long", "float", "double"},
    "decimal": {"decimal", "int", "long", "float", "double", "string"},
    "date": {"date", "string"},
    "timestamp": {*MOMENTS, "string"},
    "binary": {"bytes", "fixed"},
    "array": {"array"},
    "map": {"map"},
    "struct": {"record"},
}
LOGICAL = {"decimal", "uuid", "date", "time-millis", "time-micros", *MOMENTS}


@dataclass(frozen=True)
class Writer:
    """A writer's schema, compared with the declared fields once."""

    schema: Any
    retyped: dict[str, str]  # fields that do not fit, and what they came as
    floats: tuple[str, ...]  # binary fractions that are declared as decimals


class AvroReader:
    """Reads the records of one source."""

    def __init__(self, schemas: Schemas, fields: Sequence[Field]) -> None:
        self._schemas = schemas
        self._fields = fields
        self._writers: dict[str, Writer] = {}

    def begin(self) -> AvroReader:
        """A new batch: schemas that were missing are looked for again."""
        self._schemas.begin()
        return self

    def read(self, raw: bytes, header: bytes | None) -> bytes:
        """One record as JSON. Raises ValueError that says what is wrong with it."""
        text, body = self._schemas.split(raw, header)
        writer = self._writers.get(text)
        if writer is None:
            writer = self._writers[text] = compare(text, self._fields)
        row = _read(writer.schema, body)
        for name in writer.floats:
            if isinstance(row.get(name), float):
                row[name] = _plain(row[name])
        if writer.retyped:
            row = {**row, **dict.fromkeys(writer.retyped), RETYPED: writer.retyped}
        return json_line(row)


def compare(text: str, fields: Sequence[Field]) -> Writer:
    """What a writer's schema means for the declared fields."""
    try:
        schema = avro_schema(text)
    except ValueError as error:
        raise ValueError(f"of {error}") from None
    kinds = {field["name"]: _kinds(field["type"]) for field in schema["fields"]}
    retyped: dict[str, str] = {}
    floats = []
    for field in fields:
        found = kinds.get(field.name)
        if found is None:
            continue
        declared = field.type.partition("(")[0].partition("<")[0].lower()
        if found and not found & READS[declared]:
            retyped[field.name] = " or ".join(sorted(found))
        if field.decimal and found & {"float", "double"}:
            floats.append(field.name)
    return Writer(schema, retyped, tuple(floats))


def _read(schema: Any, body: bytes) -> dict[str, Any]:
    stream = io.BytesIO(body)
    try:
        row: Any = fastavro.schemaless_reader(stream, schema, None)
    except BROKEN as error:
        raise ValueError(f"not Avro of its schema: {type(error).__name__}") from None
    if stream.tell() != len(body):
        raise ValueError(f"not Avro of its schema: {len(body) - stream.tell()} bytes are left over")
    found: dict[str, Any] = row
    return found


def _kinds(kind: Any) -> set[str]:
    """The types that a field may have, null aside; a logical type by its own name."""
    if isinstance(kind, list):
        return set().union(*map(_kinds, kind))
    if isinstance(kind, dict):
        logical = kind.get("logicalType")
        return {logical} if logical in LOGICAL else _kinds(kind["type"])
    if kind == "null":
        return set()
    return {kind if kind in PRIMITIVE else "record"}  # else a name: of a type written before


PRIMITIVE = {
    "string", "boolean", "int", "long", "float", "double", "bytes", "fixed", "enum", "array", "map",
    "record",
}  # fmt: skip


def _plain(value: float) -> Decimal | float:
    """The shortest decimal that is this number, without an exponent."""
    found = Decimal(repr(value))
    return found if found.is_finite() else value
