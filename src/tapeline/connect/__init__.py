"""Where data comes from and goes to: one module per system, pyspark only inside methods."""

from tapeline.connect.files import Files
from tapeline.connect.http_pull import HttpPull
from tapeline.connect.kafka import Kafka
from tapeline.connect.postgres_pull import PostgresPull
from tapeline.connect.within import Console, Foreach, Memory

__all__ = ["Console", "Files", "Foreach", "HttpPull", "Kafka", "Memory", "PostgresPull"]
