"""Avro: records become JSON by the schema they were written with; rows are written by a file's."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from tapeline.books.reasons import reason
from tapeline.declare.format import Format, RecordFile, RecordSource, Row, Schemas
from tapeline.declare.schema import Field
from tapeline.errors import DeclarationError, OperationError
from tapeline.formats.avro_files import MAGIC, avro_records
from tapeline.formats.avro_schemas import BROKEN, avro_schema
from tapeline.formats.faults import RETYPED
from tapeline.formats.json_line import json_line
from tapeline.store.files import read_json
from tapeline.words import counted

# Which of Avro's types a declared one may be written as: its own, what Avro promotes to it, and the
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
class Avro(Format):
    """Container files, and messages of one schema or with the id of theirs."""

    reader: AvroReader | None = None
    writer: AvroWriter | None = None
    name = "avro"
    writes = ("message",)
    extra = "avro"
    retypes = True

    def for_source(self, source: RecordSource) -> Format:
        return replace(self, reader=AvroReader(source.schemas(), source.fields))

    def for_sink(self, project: Path, schemas: str | None) -> Format:
        return replace(self, writer=AvroWriter(project / str(schemas)))

    def begin_batch(self) -> None:
        if self.reader:
            self.reader.begin()

    def split(self, file: RecordFile) -> Iterator[Sequence[bytes]]:
        def know(schema: bytes) -> None:
            # By its name beside every record: the schema may be as long as many of them.
            file.header = file.keep(schema)

        with file.open() as opened:
            if opened.read(len(MAGIC)) != MAGIC:
                raise ValueError("it is not an Avro file, which the source was declared to hold")
            opened.seek(0)
            try:
                yield from avro_records(opened, file.limits, know)
            except (ValueError, OSError) as error:
                raise ValueError(f"its Avro cannot be read: {error}") from None

    def decode(self, raw: bytes, header: bytes | None) -> bytes:
        assert self.reader is not None
        return self.reader.read(raw, header)

    def encode(self, row: Row) -> bytes:
        assert self.writer is not None
        return self.writer.write(row)


def check_schemas(what: str, said: Format, schemas: str | None) -> None:
    """Refuse `schemas` of a format that is not Avro."""
    if schemas is not None and not isinstance(said, Avro):
        raise DeclarationError(f"{what}: 'schemas' is only for Avro; the format is '{said.name}'.")


def check_sink(what: str, said: Format, schemas: str | None) -> None:
    """Refuse a sink of Avro without a schema to write by."""
    if schemas is None and isinstance(said, Avro):
        raise DeclarationError(
            f"{what}: a sink with format 'avro' needs a schema file: schemas='trade.avsc'."
        )


class AvroWriter:
    """Writes rows by a schema file. One that is called by a number has that id in the registry."""

    def __init__(self, path: Path) -> None:
        import fastavro

        try:
            self._schema = fastavro.parse_schema(read_json(path))
        except (OSError, ValueError, KeyError) as error:
            raise DeclarationError(
                f"Kafka: the Avro schema {path} cannot be used: {error}. Correct the file."
            ) from None
        self._name = path.name
        self._header = struct.pack(">bI", 0, int(path.stem)) if path.stem.isdecimal() else b""

    def write(self, row: Row) -> bytes:
        import fastavro

        out = io.BytesIO()
        out.write(self._header)
        try:
            fastavro.schemaless_writer(out, self._schema, row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise OperationError(
                f"AVRO: a row does not match the schema {self._name}: {error}. Change the sink's "
                "function or the schema, and start again."
            ) from None
        return out.getvalue()


@dataclass(frozen=True)
class WriterSchema:
    """A writer's schema, compared with the declared fields once."""

    schema: Any
    retyped: dict[str, str]  # fields that do not fit, and what they came as
    floats: tuple[str, ...]  # binary fractions that are declared as decimals


class AvroReader:
    """Reads the records of one source."""

    def __init__(self, schemas: Schemas, fields: Sequence[Field]) -> None:
        self._schemas = schemas
        self._fields = fields
        self._writers: dict[str, WriterSchema] = {}

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


def compare(text: str, fields: Sequence[Field]) -> WriterSchema:
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
    return WriterSchema(schema, retyped, tuple(floats))


def _read(schema: Any, body: bytes) -> dict[str, Any]:
    import fastavro

    stream = io.BytesIO(body)
    try:
        row: Any = fastavro.schemaless_reader(stream, schema, None)
    except BROKEN as error:
        raise ValueError(f"not Avro of its schema: {type(error).__name__}") from None
    if stream.tell() != len(body):
        left = counted(len(body) - stream.tell(), "byte")
        raise ValueError(reason("not Avro of its schema: bytes are left over", left))
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
