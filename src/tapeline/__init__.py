"""Tapeline keeps the books of a stream."""

from tapeline.connect import Console, Files, Foreach, HttpPull, Kafka, Memory, PostgresPull
from tapeline.declare import (
    Alerts,
    Changes,
    Destination,
    Each,
    FencedError,
    Format,
    Pipeline,
    RecordFile,
    Rows,
    SinkBatch,
    SinkContext,
    SinkPosition,
    Snapshot,
    Stream,
    expect,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
)
from tapeline.errors import DeclarationError, OperationError, TapelineError
from tapeline.formats.csv import Csv
from tapeline.formats.json import Json
from tapeline.formats.records import Records
from tapeline.settings import option

__all__ = [
    "Alerts",
    "Changes",
    "Console",
    "Csv",
    "DeclarationError",
    "Destination",
    "Each",
    "FencedError",
    "Files",
    "Foreach",
    "Format",
    "HttpPull",
    "Json",
    "Kafka",
    "Memory",
    "OperationError",
    "Pipeline",
    "PostgresPull",
    "RecordFile",
    "Records",
    "Rows",
    "SinkBatch",
    "SinkContext",
    "SinkPosition",
    "Snapshot",
    "Stream",
    "TapelineError",
    "expect",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "option",
]
