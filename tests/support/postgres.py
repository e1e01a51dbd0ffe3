"""A real PostgreSQL for tests: initialised in a folder of its own, on a free port of loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

START_SECONDS = 60.0
PASSWORD = "not-a-secret"
MISSING = "there is no PostgreSQL: 'apt-get install postgresql', or run 'make test' as root"
_numbers = count(1)


@dataclass(frozen=True)
class Postgres:
    """A server that runs; `address` names neither database nor password."""

    address: str

    def connect(self, database: str = "postgres", **said: Any) -> psycopg.Connection[Any]:
        address = f"{self.address} dbname={database}"
        return psycopg.connect(address, password=PASSWORD, **{"autocommit": True, **said})

    def new_database(self) -> str:
        """The name of an empty database, a test's own."""
        name = f"office_{next(_numbers)}"
        with self.connect() as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return name


def binaries() -> Path | None:
    """Where the server's programs are; Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    kept = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return kept[-1].parent if kept else None


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Start a server, and end it with all it has written."""
    programs = binaries()
    if programs is None:
        if os.environ.get("REQUIRE_POSTGRES"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="tapeline-postgres-"))
    # PostgreSQL refuses to run as root.
    user = _unprivileged() if os.geteuid() == 0 else None
    if user:
        os.chown(folder, user.pw_uid, user.pw_gid)
    who: dict[str, Any] = (
        {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    )
    try:
        with _started(programs, folder, who) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _started(programs: Path, folder: Path, who: dict[str, Any]) -> Iterator[Postgres]:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    data = str(folder / "data")
    words = ["-D", data, "-U", "reader", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync"]
    subprocess.run(
        [programs / "initdb", *words], cwd=folder, check=True, capture_output=True, **who
    )
    port = _free_port()
    options = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": folder,
        "fsync": "off",
        "max_prepared_transactions": 5,
    }
    said = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *said], cwd=folder, stdout=log, stderr=log, **who
        )
    found = Postgres(f"host=127.0.0.1 port={port} user=reader")
    try:
        _wait(found, server, folder / "log")
        yield found
    finally:
        server.send_signal(signal.SIGINT)  # fast: connections are ended
        server.wait(30)


def _wait(found: Postgres, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            found.connect(connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
