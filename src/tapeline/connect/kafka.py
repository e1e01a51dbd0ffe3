"""Topics of a Kafka cluster."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from tapeline.connect.formats import MessageFormat, NewFields, check_format, columns
from tapeline.declare.duration import parse_moment
from tapeline.declare.schema import Field
from tapeline.errors import DeclarationError
from tapeline.settings import KafkaSettings

PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})(/(?P<partition>\d{1,6}))?")
MESSAGE_COLUMN = "message"  # of streams with meta=True
Offsets = str | Mapping[str, int]
# For clients: their own log would tell every attempt to reach a cluster that is gone.
quiet = logging.getLogger("tapeline.kafka.client")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


@dataclass(frozen=True)
class Kafka:
    """Topics of a Kafka cluster. Where it is, is a setting. Delivers: exactly once into the tape.

    `topics` is a name, several, or a compiled pattern that new topics may match; "trades/0" names
    one partition. A partition that the tape does not know yet begins at `starting`: "earliest",
    "latest", a moment such as "2026-11-13 10:00", or offsets by partition, {"trades/0": 100}. At
    `ending` nothing more is taken: "latest" as of the start of the run, a moment, or the offsets
    behind the last ones. With `meta` steps also see the column `message`: key, headers, topic,
    partition, offset, timestamp. `new_fields` is as of Files. `schemas` says how Avro was written:
    a file, of every message; a folder of <id>.avsc, of messages that begin with their schema's id;
    without it the registry that the settings name has the ids.
    """

    topics: str | Sequence[str] | re.Pattern[str]
    format: MessageFormat = "json"
    schema: str | None = None
    zone: str = "UTC"
    starting: Offsets = "earliest"
    new_fields: NewFields = "ignore"
    schemas: str | None = None
    ending: Offsets | None = None
    meta: bool = False

    def __post_init__(self) -> None:
        for name in self.names:
            if not PARTITION.fullmatch(name):
                raise DeclarationError(
                    f"Kafka: '{name}' is neither a topic's name nor a partition's, such as "
                    "'trades/0'."
                )
        if not self.names and not isinstance(self.topics, re.Pattern):
            raise DeclarationError("Kafka: name a topic, several, or a pattern: re.compile('...').")
        check_format("Kafka", self.format, MessageFormat, self.new_fields, self.zone)
        if self.schemas is not None and self.format != "avro":
            raise DeclarationError(f"Kafka: 'schemas' are of Avro; the format is '{self.format}'.")
        moment_of(self.starting)
        if self.ending == "earliest":
            raise DeclarationError("Kafka: ending='earliest' would take nothing.")
        if self.ending is not None:
            moment_of(self.ending)
        if self.meta and any(field.name == MESSAGE_COLUMN for field in self.fields):
            raise DeclarationError(
                f"Kafka: meta=True adds the column '{MESSAGE_COLUMN}', which the schema has too. "
                "Leave one of them out."
            )

    @property
    def path(self) -> str:
        """What a plan shows: never where the cluster is."""
        if isinstance(self.topics, re.Pattern):
            return f"topics like {self.topics.pattern}"
        return f"topic {', '.join(self.names)}"

    @property
    def goes_to(self) -> str:
        """What a plan shows of a sink: one whole topic."""
        if len(self.names) != 1 or "/" in self.names[0]:
            raise DeclarationError("Kafka: a sink goes to one topic; its key chooses a partition.")
        if self.format not in ("json", "avro"):
            raise DeclarationError("Kafka: a sink sends messages as json or avro.")
        if self.format == "avro" and self.schemas is None:
            raise DeclarationError("Kafka: a sink of format 'avro' needs a schema file: 'schemas'.")
        return self.path

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The topics and partitions that are named; none when a pattern chooses them."""
        if isinstance(self.topics, re.Pattern):
            return ()
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The columns of a decoded message."""
        return columns(f"Kafka({self.path})", self.format, self.schema, self.new_fields)

    def chooses(self, topic: str, partition: int) -> bool:
        """Whether a partition belongs to this source."""
        if isinstance(self.topics, re.Pattern):
            return self.topics.fullmatch(topic) is not None
        return topic in self.names or f"{topic}/{partition}" in self.names


def moment_of(said: Offsets) -> datetime | None:
    """The moment that `starting` names, if it names one."""
    if not isinstance(said, str) or said in ("earliest", "latest"):
        return None
    return parse_moment(said)


def client_options(settings: KafkaSettings) -> dict[str, str | int | bool]:
    """What librdkafka needs to reach the cluster; secrets come from the environment."""
    if not settings.brokers:
        raise DeclarationError(
            "kafka.brokers is not set. Write it into tapeline.toml: [kafka] brokers = "
            "'127.0.0.1:9092'; 'tapeline broker start' runs one for development."
        )
    said: dict[str, str | int | bool] = {
        "bootstrap.servers": settings.brokers,
        "security.protocol": settings.security.lower(),
        "ssl.ca.location": settings.ca_file,
        "ssl.certificate.location": settings.certificate_file,
        "ssl.key.location": settings.key_file,
        "sasl.mechanism": settings.sasl_mechanism if settings.username else "",
        "sasl.username": settings.username,
        "sasl.password": secret(settings.password_variable, "kafka.password_variable"),
    }
    return {key: value for key, value in said.items() if value}


def secret(variable: str, setting: str) -> str:
    """What a variable of the environment holds, which a setting names; nothing when none does."""
    if variable and not os.environ.get(variable):
        raise DeclarationError(
            f"the environment variable {variable}, which {setting} names, is not set."
        )
    return os.environ.get(variable, "") if variable else ""
