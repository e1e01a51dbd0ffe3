"""Passwords do not travel in the clear beyond this machine, unless a setting says so by name."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from tapeline import DeclarationError, PostgresPull
from tapeline.connect.kafka import client_options
from tapeline.settings import KafkaSettings, PullSettings

REMOTE = "host=db.example dbname=office user=reader"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine counts, and nobody is contacted."""
    for variable in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSERVICE"):
        monkeypatch.delenv(variable, raising=False)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("psycopg.connect", refuse)
    monkeypatch.setenv("OFFICE_PASSWORD", "secret")


def reader(address: str, password_in_clear: str = "no") -> None:
    said = PullSettings(address=address, password_in_clear=password_in_clear)  # type: ignore[arg-type]
    PostgresPull("trades", "number").reader("office", said, "secret").close()


@pytest.mark.parametrize(
    "address",
    [
        REMOTE,
        f"{REMOTE} sslmode=prefer",
        f"{REMOTE} sslmode=disable",
        f"{REMOTE} sslmode=allow",
        "postgresql://reader@db.example/office",
        "host=127.0.0.1,db.example user=reader",
        "host=localhost hostaddr=192.0.2.1",
        "hostaddr=2001:db8::1",
        "host=db.example,localhost hostaddr=,127.0.0.1",
        "service=office",
    ],
)
def test_postgres_beyond_this_machine_needs_tls(address: str) -> None:
    with pytest.raises(DeclarationError, match=r"unencrypted.*sslmode=verify-full") as told:
        reader(address)
    assert "pull.office.password_in_clear = 'yes'" in str(told.value)
    assert "db.example" not in str(told.value)
    reader(address, "yes")


@pytest.mark.parametrize(
    "address",
    [
        "dbname=office",
        "host=/run/postgresql",
        "host=@socket",
        "host=localhost",
        "host=127.0.0.5",
        "host=::1",
        "postgresql://reader@[::1]:5432/office",
        f"{REMOTE} sslmode=require",
        f"{REMOTE} sslmode=verify-full sslrootcert=ca.pem",
        "postgresql://db.example/office?sslmode=verify-ca",
    ],
)
def test_postgres_on_this_machine_or_over_tls_is_asked(address: str) -> None:
    reader(address)


def test_variables_of_libpq_count(monkeypatch: pytest.MonkeyPatch) -> None:
    reader("dbname=office")
    monkeypatch.setenv("PGHOST", "db.example")
    with pytest.raises(DeclarationError, match="unencrypted"):
        reader("dbname=office")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    reader("dbname=office")
    with pytest.raises(DeclarationError, match="unencrypted"):
        reader("dbname=office sslmode=prefer")


KAFKA = KafkaSettings(
    brokers="broker.example:9092",
    security="SASL_PLAINTEXT",
    sasl_mechanism="PLAIN",
    username="reader",
    password_variable="OFFICE_PASSWORD",
)


@pytest.mark.parametrize(
    "brokers",
    [
        "broker.example:9092",
        "127.0.0.1:9092, broker.example:9092",
        "192.0.2.1",
        "[2001:db8::1]:9092",
        "SASL_PLAINTEXT://broker.example:9092",
        "localhost.example:9092",
        "[broken:9092",
    ],
)
def test_kafka_beyond_this_machine_gets_no_password_in_the_clear(brokers: str) -> None:
    with pytest.raises(DeclarationError, match=r"unencrypted.*SASL_SSL") as told:
        client_options(replace(KAFKA, brokers=brokers))
    assert "kafka.password_in_clear = 'yes'" in str(told.value)
    assert client_options(replace(KAFKA, brokers=brokers, password_in_clear="yes"))


@pytest.mark.parametrize(
    "said",
    [
        {"brokers": "127.0.0.1:9092,localhost:9093,[::1]:9094"},
        {"security": "SASL_SSL"},
        {"sasl_mechanism": "SCRAM-SHA-512"},
        {"security": "PLAINTEXT", "username": "", "password_variable": ""},
    ],
)
def test_kafka_is_asked_where_no_password_is_shown(said: dict[str, str]) -> None:
    assert client_options(replace(KAFKA, **said))  # type: ignore[arg-type]
