"""Whether a password would travel where others on the network can read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from itertools import zip_longest
from urllib.parse import urlsplit

from tapeline.errors import DeclarationError
from tapeline.settings import KafkaSettings

ENCRYPTED = ("require", "verify-ca", "verify-full")  # sslmode: TLS, or no connection
SOCKETS = ("/", "@")  # how libpq writes a socket of this machine


def is_loopback(host: str) -> bool:
    """Whether what is sent to a host stays on this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def refuse_clear_postgres(
    said: Mapping[str, object], environment: Mapping[str, str], name: str
) -> None:
    """Refuse a connection that libpq would make without TLS, beyond this machine.

    libpq's own default, `prefer`, continues in the clear when a server, or a machine in between,
    says that it has no TLS. It may find a password in places of its own, so whether a setting names
    one does not matter.
    """
    mode = said.get("sslmode") or environment.get("PGSSLMODE") or "prefer"
    if mode in ENCRYPTED or not list(_beyond(said, environment)):
        return
    raise DeclarationError(
        f"pull.{name}.address is on another machine and sslmode={mode} may send the password and "
        "the rows unencrypted. Add sslmode=verify-full (with sslrootcert=...), or at least "
        f"sslmode=require. To allow it, set pull.{name}.password_in_clear = 'yes'."
    )


def _beyond(said: Mapping[str, object], environment: Mapping[str, str]) -> Iterable[str]:
    """The hosts that are not this machine; a service's are in a file, so nobody knows."""
    if said.get("service") or environment.get("PGSERVICE"):
        yield "a service"
    addresses = str(said.get("hostaddr") or environment.get("PGHOSTADDR") or "").split(",")
    hosts = str(said.get("host") or environment.get("PGHOST") or "").split(",")
    # Each address takes the place of the host beside it; an empty one leaves that host.
    for address, host in zip_longest(addresses, hosts, fillvalue=""):
        goal = address.strip() or host.strip()
        if goal and not goal.startswith(SOCKETS) and not is_loopback(goal):
            yield goal


def refuse_clear_kafka(settings: KafkaSettings) -> None:
    """Refuse to send a password over a connection without TLS, beyond this machine.

    SCRAM proves that both sides know the password and does not send it.
    """
    plain = settings.security == "SASL_PLAINTEXT" and settings.sasl_mechanism == "PLAIN"
    if not plain or settings.password_in_clear == "yes":
        return
    if any(not is_loopback(host) for host in _hosts(settings.brokers)):
        raise DeclarationError(
            "kafka.brokers is on another machine, and SASL_PLAINTEXT with the mechanism PLAIN "
            "sends the password unencrypted. Set kafka.security = 'SASL_SSL', or use "
            "SCRAM-SHA-512. To allow it, set kafka.password_in_clear = 'yes'."
        )


def _hosts(brokers: str) -> list[str]:
    """The hosts of 'host:port, ...'; one that cannot be read is taken for a foreign one."""
    found = []
    for broker in filter(None, map(str.strip, brokers.split(","))):
        try:
            found.append(urlsplit(broker if "://" in broker else f"//{broker}").hostname or "")
        except ValueError:
            found.append("")
    return found
