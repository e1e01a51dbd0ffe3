"""Rows as the bytes of a message: JSON, or Avro by a schema file."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tapeline.connect.kafka import Kafka
from tapeline.errors import DeclarationError, OperationError
from tapeline.show import plain

Row = dict[str, Any]
Encoder = Callable[[Row], bytes]


def encoder_of(kafka: Kafka, project: Path) -> Encoder:
    """How a sink's messages are written."""
    if kafka.format == "avro":
        return _avro(project / str(kafka.schemas))
    return as_json


def as_json(row: Row) -> bytes:
    """One row as JSON: money is text, times are in UTC."""
    return ENCODER.encode(row).encode()


def _leaf(value: Any) -> Any:
    said = plain(value)
    if said is value:
        raise OperationError(f"JSON: a row holds a {type(value).__name__}, which JSON cannot hold.")
    return said


ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_leaf)


def _avro(path: Path) -> Encoder:
    """By a schema file. One that is called by a number has that id in the registry: `7.avsc`."""
    from fastavro import parse_schema, schemaless_writer

    try:
        schema = parse_schema(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise DeclarationError(f"Kafka: the Avro schema {path} cannot be used: {error}.") from None
    header = struct.pack(">bI", 0, int(path.stem)) if path.stem.isdecimal() else b""

    def encode(row: Row) -> bytes:
        out = io.BytesIO()
        out.write(header)
        try:
            schemaless_writer(out, schema, row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise OperationError(
                f"AVRO: a row does not fit the schema {path.name}: {error}. Change the sink's "
                "function or the schema, and start again."
            ) from None
        return out.getvalue()

    return encode
