"""A schema registry: gives out the schemas that Avro messages were written with, by their ids."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tapeline.connect.http import LOOPBACK
from tapeline.connect.http_body import ACCEPTED, EncodedError, TooLongError, parts_of
from tapeline.connect.kafka import secret
from tapeline.errors import DeclarationError, OperationError
from tapeline.settings import Settings

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 10.0
ANSWER_BYTES = 4 * 1024 * 1024  # a schema is 1 MiB at most, and is quoted in the answer


class RegistryLink:
    """Asks the registry of the settings. Follows no redirect, so a password goes nowhere else."""

    def __init__(self, settings: Settings) -> None:
        import httpx

        said = settings.kafka
        self._username = said.registry_username
        self._variable = said.registry_password_variable
        password = secret(self._variable, "kafka.registry_password_variable")
        try:
            self._url = httpx.URL(said.registry.rstrip("/"))
        except httpx.InvalidURL:
            raise DeclarationError(
                "kafka.registry is not a valid address. Write for example 'http://127.0.0.1:8081'."
            ) from None
        _check(self._url, self._username, password)
        self._auth = (self._username, password) if self._username else None
        self._trust = _trust(settings)

    def schema(self, number: int) -> dict[str, Any] | None:
        """What the registry says of a schema; None when it has none of this id."""
        import httpx

        try:
            with httpx.stream(
                "GET",
                f"{self._url}/schemas/ids/{number}",
                headers={"Accept-Encoding": ACCEPTED},
                auth=self._auth,
                verify=self._trust,
                timeout=TIMEOUT_SECONDS,
            ) as answer:
                if answer.status_code == httpx.codes.NOT_FOUND:
                    return None
                answer.raise_for_status()
                found = json.loads(b"".join(_in_time(parts_of(answer, ANSWER_BYTES))))
            if not isinstance(found["schema"], str):
                raise TypeError
            return dict(found)
        except (httpx.HTTPError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise OperationError(
                f"the schema registry (kafka.registry) did not return schema {number}: "
                f"{self._why(error)}. The batch waits and is retried."
            ) from None

    def _why(self, error: Exception) -> str:
        """Why there was no schema, and who must act; never the address or a secret."""
        import httpx

        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            if status not in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
                return f"it answered {status}"
            who = f"the user '{self._username}'" if self._username else "an anonymous user"
            where = self._variable or "the variable that kafka.registry_password_variable names"
            return (
                f"it refuses {who} ({status}). Correct kafka.registry_username or the password in "
                f"{where}, and start again"
            )
        if isinstance(error, httpx.ConnectError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "its certificate is not trusted. See kafka.registry_ca_file"
        if isinstance(error, TooLongError | EncodedError):
            return f"its answer {error}"
        return type(error).__name__


def _in_time(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Each wait for bytes has a limit; this one is for all of them."""
    ends = time.monotonic() + TIMEOUT_SECONDS
    for part in parts:
        if time.monotonic() > ends:
            raise EncodedError(f"took longer than {TIMEOUT_SECONDS:.0f} s")
        yield part


def _check(url: httpx.URL, username: str, password: str) -> None:
    """Refuse what would show a secret, or could not be meant."""
    if url.userinfo:
        raise DeclarationError(
            "kafka.registry contains a user name or password. Set kafka.registry_username, put the "
            "password into an environment variable and name that variable in "
            "kafka.registry_password_variable."
        )
    if bool(username) != bool(password):
        raise DeclarationError(
            "kafka.registry_username and kafka.registry_password_variable belong together: set "
            "both or neither."
        )
    if ":" in username:
        raise DeclarationError("kafka.registry_username must not contain a colon.")
    if password and url.scheme == "http" and url.host not in LOOPBACK:
        raise DeclarationError(
            "kafka.registry is http:// on another machine, which sends the password unencrypted. "
            "Use https://."
        )


def _trust(settings: Settings) -> ssl.SSLContext:
    """Whom to believe that a registry is the registry: the machine's authorities, or a file's."""
    said = settings.kafka.registry_ca_file
    try:
        return ssl.create_default_context(cafile=settings.within(said) if said else None)
    except OSError as error:
        raise DeclarationError(
            f"kafka.registry_ca_file: '{said}' is not a readable certificate file: "
            f"{error.strerror}."
        ) from None
