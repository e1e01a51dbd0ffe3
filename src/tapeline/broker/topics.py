"""What a broker holds, asked through a client."""

from __future__ import annotations

import logging
import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tapeline.errors import OperationError
from tapeline.words import counted

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

CONNECT_SECONDS = 1.0
MAKE_SECONDS = 30.0
PAUSE_SECONDS = 0.02
NAME = re.compile(r"(?!__|\.{1,2}$)[A-Za-z0-9._-]{1,249}")
MAX_PARTITIONS = 1_000
# The client's own log would tell every attempt to reach a broker that is starting.
_quiet = logging.getLogger("tapeline.broker.client")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True)
class Seen:
    """A broker's answer: which cluster it is, and its topics with their partitions."""

    cluster_id: str
    topics: dict[str, int]


def look(address: str, seconds: float) -> Seen | None:
    """Ask a broker what it holds; None when nobody answers, or one that is not ready."""
    from confluent_kafka import KafkaException

    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        seen = _client(address).list_topics(timeout=seconds)
    except (OSError, KafkaException):
        return None
    if not seen.brokers:
        return None  # it answers, but takes nothing yet
    users = {name: topic for name, topic in seen.topics.items() if not name.startswith("__")}
    return Seen(str(seen.cluster_id), {name: len(one.partitions) for name, one in users.items()})


def make(address: str, name: str, partitions: int) -> bool:
    """Make a topic; False when it is there already, with as many partitions."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    if not NAME.fullmatch(name):
        raise OperationError(
            f"'{name}' cannot be a topic name. Use at most 249 letters, digits, '.', '_' and '-'; "
            "names that start with '__' are reserved by Kafka."
        )
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise OperationError(f"a topic needs 1 to {MAX_PARTITIONS} partitions, not {partitions}.")
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1)
    client = _client(address)  # it must live until the answer is there
    made = client.create_topics([wanted], operation_timeout=MAKE_SECONDS)
    try:
        made[name].result(MAKE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise OperationError(f"topic '{name}': {error.args[0].str()}.") from None
        _refuse_other(address, name, partitions)
        return False
    _wait_until_known(client, name, partitions)
    return True


def _wait_until_known(client: AdminClient, name: str, partitions: int) -> None:
    """A broker hears of a topic, and leads it, a moment after it is made."""
    deadline = time.monotonic() + MAKE_SECONDS
    while time.monotonic() < deadline:
        known = client.list_topics(timeout=MAKE_SECONDS).topics.get(name)
        found = list(known.partitions.values()) if known else []
        if len(found) == partitions and all(one.leader >= 0 for one in found):
            return
        time.sleep(PAUSE_SECONDS)
    raise OperationError(f"topic '{name}' was created but has no leader. See logs/server.log.")


def _refuse_other(address: str, name: str, partitions: int) -> None:
    seen = look(address, MAKE_SECONDS)
    held = seen.topics.get(name) if seen else None
    if held != partitions:
        raise OperationError(
            f"topic '{name}' already exists with {counted(held or 0, 'partition')}, not "
            f"{partitions}. Choose another name."
        )


def _client(address: str) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": address}, logger=_quiet)
