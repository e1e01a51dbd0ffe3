"""Topics of a Kafka cluster."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from tapeline.connect.clear_text import refuse_clear_kafka
from tapeline.declare.destination import Destination
from tapeline.declare.duration import parse_moment
from tapeline.declare.format import Format
from tapeline.declare.schema import Field
from tapeline.declare.source import Intakes
from tapeline.errors import DeclarationError
from tapeline.extras import require
from tapeline.formats.avro import check_schemas, check_sink
from tapeline.formats.fix import FixChecks, with_checks
from tapeline.formats.named import MessageFormatName, check_writes, format_of
from tapeline.formats.records import MESSAGE_COLUMN, NewFields, Records
from tapeline.settings import KafkaSettings, Settings

PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})(/(?P<partition>\d{1,6}))?")
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
    after the last ones. With `meta` steps also see the column `message`: key, headers, topic,
    partition, offset, timestamp. `new_fields` and `fix_checks` are as for Files. `schemas` says
    how Avro was written: a file, of every message; a folder of <id>.avsc, of messages that begin
    with their schema's id; without it the registry that the settings name has the ids.
    """

    topics: str | Sequence[str] | re.Pattern[str]
    format: MessageFormatName | Format = "json"
    schema: str | None = None
    zone: str = "UTC"
    starting: Offsets = "earliest"
    new_fields: NewFields = "ignore"
    schemas: str | None = None
    ending: Offsets | None = None
    meta: bool = False
    fix_checks: FixChecks = "quarantine"

    def __post_init__(self) -> None:
        require("kafka", "Kafka")
        for name in self.names:
            if not PARTITION.fullmatch(name):
                raise DeclarationError(
                    f"Kafka: '{name}' is not a topic, or a partition such as 'trades/0'."
                )
        if not self.names and not isinstance(self.topics, re.Pattern):
            raise DeclarationError(
                "Kafka: give a topic, several topics, or a pattern: re.compile('...')."
            )
        check_schemas("Kafka", self.records.written, self.schemas)
        moment_of(self.starting)
        if self.ending == "earliest":
            raise DeclarationError(
                "Kafka: ending='earliest' would read nothing. Use another ending."
            )
        if self.ending is not None:
            moment_of(self.ending)
        if self.meta and any(field.name == MESSAGE_COLUMN for field in self.fields):
            raise DeclarationError(
                f"Kafka: meta=True adds the column '{MESSAGE_COLUMN}', but the schema already has "
                "it. Remove one of them."
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
            raise DeclarationError(
                "Kafka: a sink writes to one topic; the message key selects the partition."
            )
        check_writes("Kafka", self.records.written, "message")
        check_sink("Kafka", self.records.written, self.schemas)
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
        return self.records.fields

    @cached_property
    def records(self) -> Records:
        """How the messages are written, and the columns that steps see."""
        what = f"Kafka({self.path})"
        written = with_checks(what, format_of(what, self.format, "message"), self.fix_checks)
        return Records(
            written, self.schema, self.zone, self.new_fields, messages=True, meta=self.meta,
            what=what,
        )  # fmt: skip

    def decoder(self, settings: Settings, pipeline: str) -> Format:
        """The format, ready to decode what the tape of a pipeline has of these topics."""
        from tapeline.connect.kafka_schemas import schemas_of

        what = f"Kafka({self.path})"
        return self.records.opened(lambda: schemas_of(what, self.schemas, settings, pipeline))

    def taken_by(self, intakes: Intakes) -> Any:
        return intakes.from_topics(self)

    def destination(self) -> Destination:
        from tapeline.connect.topic_destination import TopicDestination

        return TopicDestination(self)

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
            "kafka.brokers is not set. Add it to tapeline.toml: [kafka] brokers = "
            "'127.0.0.1:9092'; 'tapeline broker start' starts a broker for development."
        )
    refuse_clear_kafka(settings)
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
            f"the environment variable {variable} is not set. The setting {setting} needs it."
        )
    return os.environ.get(variable, "") if variable else ""
