"""Tapeline keeps the books of a stream."""

from tapeline.connect import Console, Files, Foreach, HttpPull, Kafka, Memory, PostgresPull
from tapeline.declare import (
    Alerts,
    Changes,
    Each,
    Pipeline,
    Rows,
    Snapshot,
    Stream,
    expect,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
)
from tapeline.errors import DeclarationError, OperationError, TapelineError
from tapeline.settings import option

__all__ = [
    "Alerts",
    "Changes",
    "Console",
    "DeclarationError",
    "Each",
    "Files",
    "Foreach",
    "HttpPull",
    "Kafka",
    "Memory",
    "OperationError",
    "Pipeline",
    "PostgresPull",
    "Rows",
    "Snapshot",
    "Stream",
    "TapelineError",
    "expect",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "option",
]
