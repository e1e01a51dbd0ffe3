"""Records and containers of Avro, written by the schema they are given."""

from __future__ import annotations

import io
from typing import Any

import fastavro


def schema(**fields: Any) -> dict[str, Any]:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Trade", "fields": named}


def written(by: dict[str, Any], row: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, by, row)
    return file.getvalue()


def container(by: dict[str, Any], rows: list[dict[str, Any]], codec: str = "null") -> io.BytesIO:
    file = io.BytesIO()
    fastavro.writer(file, by, rows, codec=codec, sync_interval=2_000)
    file.seek(0)
    return file
