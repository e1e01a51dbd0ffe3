"""Tapeline keeps the books of a stream."""

from tapeline.connect import Files, HttpPull, Kafka, PostgresPull
from tapeline.declare import (
    Pipeline,
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
    "DeclarationError",
    "Files",
    "HttpPull",
    "Kafka",
    "OperationError",
    "Pipeline",
    "PostgresPull",
    "Snapshot",
    "Stream",
    "TapelineError",
    "expect",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "option",
]
