"""Tapeline keeps the books of a stream."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapeline.connect import (
        Console,
        DeltaReference,
        Files,
        Foreach,
        HttpPull,
        HttpReference,
        Kafka,
        Memory,
        Own,
        PostgresPull,
        PostgresReference,
        Query,
    )
    from tapeline.declare import (
        Alerts,
        Changes,
        Destination,
        Each,
        FencedError,
        Format,
        Pipeline,
        Polled,
        RecordFile,
        Rows,
        SinkBatch,
        SinkContext,
        SinkPosition,
        Snapshot,
        Source,
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
    from tapeline.formats.text import Text
    from tapeline.settings import option

__all__ = [
    "Alerts",
    "Changes",
    "Console",
    "Csv",
    "DeclarationError",
    "DeltaReference",
    "Destination",
    "Each",
    "FencedError",
    "Files",
    "Foreach",
    "Format",
    "HttpPull",
    "HttpReference",
    "Json",
    "Kafka",
    "Memory",
    "OperationError",
    "Own",
    "Pipeline",
    "Polled",
    "PostgresPull",
    "PostgresReference",
    "Query",
    "RecordFile",
    "Records",
    "Rows",
    "SinkBatch",
    "SinkContext",
    "SinkPosition",
    "Snapshot",
    "Source",
    "Stream",
    "TapelineError",
    "Text",
    "expect",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "option",
]

# Imported when first asked for: a command such as `tapeline --help` needs none of them.
_ROOMS = (
    "connect", "declare", "errors", "formats.csv", "formats.json", "formats.records",
    "formats.text", "settings",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """A public name, from the room that defines it."""
    if name in __all__:
        for room in _ROOMS:
            value = getattr(import_module(f"tapeline.{room}"), name, None)
            if value is not None:
                globals()[name] = value
                return value
    raise AttributeError(f"module 'tapeline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
