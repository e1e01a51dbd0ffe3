"""Why a cluster does not answer, in words that say who must act; never an address or a secret.

The client retries for ever and tells the reason aside. `ClientErrors` listens to that, so that a
wrong password is not reported as a cluster that is down.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

from tapeline.errors import OperationError, RefusedError
from tapeline.settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

HANDSHAKE_SECONDS = 5.0
SOURCE_DOWN = (
    "SOURCE_DOWN: no broker of kafka.brokers answers. Start the cluster, or correct kafka.brokers "
    "and kafka.security. Tapeline keeps trying."
)


class ClientErrors:
    """What a client told aside since it was asked, by the name of the error."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._names: set[str] = set()

    def __call__(self, error: KafkaError) -> None:
        self._names.add(error.name())

    def forget(self) -> None:
        self._names.clear()

    @property
    def refused(self) -> bool:
        """Whether the cluster says no to who asks: waiting longer is in vain."""
        return bool(self._names & {"_AUTHENTICATION", "_SSL"})

    @property
    def down(self) -> bool:
        """Whether nobody could be reached; a broker that is started again is there in a moment."""
        return "_ALL_BROKERS_DOWN" in self._names

    def words(self, error: Exception) -> OperationError:
        """The error of a question, with what was told aside."""
        if "_AUTHENTICATION" in self._names:
            who = f"'{self._settings.username}'" if self._settings.username else "without a name"
            variable = self._settings.password_variable or "kafka.password_variable"
            return RefusedError(
                f"AUTH: the cluster refuses the user {who}. Correct kafka.username, "
                f"kafka.sasl_mechanism or the password in {variable}, and start again."
            )
        if "_SSL" in self._names:
            return RefusedError(
                f"TLS: no secure connection to the cluster: {_why_unsafe(self._settings)}. See "
                "kafka.ca_file, and the certificates of the brokers and of kafka.certificate_file."
            )
        return in_words(error)


def in_words(error: Exception) -> OperationError:
    """An error of the client's."""
    said: Any = error.args[0] if error.args else error
    name = said.name() if hasattr(said, "name") else ""
    words = said.str() if hasattr(said, "str") else str(said)
    if name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
        return OperationError(SOURCE_DOWN)
    if name == "GROUP_AUTHORIZATION_FAILED":
        return RefusedError(
            "ACL: this user may not commit offsets. Allow it to READ the group "
            "tapeline.<pipeline>.<source>."
        )
    if name.endswith("AUTHORIZATION_FAILED"):
        return forbidden("its topics")
    return OperationError(f"KAFKA: {words}. Tapeline keeps trying.")


def forbidden(topics: str) -> RefusedError:
    return RefusedError(
        f"ACL: this user may not read {topics}. Allow it to READ and DESCRIBE them."
    )


def _why_unsafe(settings: KafkaSettings) -> str:
    """What is wrong with a broker's certificate: the client says only that something is."""
    host, _, port = settings.brokers.split(",")[0].strip().rpartition(":")
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        with (
            socket.create_connection((host, int(port)), HANDSHAKE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return "the handshake failed"
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return "the handshake failed"
