"""Where data comes from and goes to: one module per system, pyspark only inside methods."""

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
