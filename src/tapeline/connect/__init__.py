"""Where data comes from and goes to: one module per system, pyspark only inside methods."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapeline.connect.files import Files
    from tapeline.connect.http import HttpPull
    from tapeline.connect.kafka import Kafka
    from tapeline.connect.local import Console, Foreach, Memory
    from tapeline.connect.own import Own
    from tapeline.connect.postgres import PostgresPull
    from tapeline.connect.query import Query
    from tapeline.connect.references import DeltaReference, HttpReference, PostgresReference

__all__ = [
    "Console",
    "DeltaReference",
    "Files",
    "Foreach",
    "HttpPull",
    "HttpReference",
    "Kafka",
    "Memory",
    "Own",
    "PostgresPull",
    "PostgresReference",
    "Query",
]

# Imported when first asked for: a pipeline uses one or two of them.
_MODULES = {
    "Console": "local",
    "DeltaReference": "references",
    "Files": "files",
    "Foreach": "local",
    "HttpPull": "http",
    "HttpReference": "references",
    "Kafka": "kafka",
    "Memory": "local",
    "Own": "own",
    "PostgresPull": "postgres",
    "PostgresReference": "references",
    "Query": "query",
}


def __getattr__(name: str) -> Any:
    """A connector, from the module of its system."""
    if name not in _MODULES:
        raise AttributeError(f"module 'tapeline.connect' has no attribute {name!r}")
    return getattr(import_module(f"tapeline.connect.{_MODULES[name]}"), name)
