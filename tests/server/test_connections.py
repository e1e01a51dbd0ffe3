"""Clients that open connections and finish nothing: they take no place from others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from tapeline.serve.connections import Limits, connections_of
from tapeline.serve.proxies import Proxies
from tests.support.brokerage import served
from tests.support.waiting import wait_for

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Endless: "
PATIENCE = 60.0


@contextmanager
def opened(address: str, first: bytes = HALF) -> Iterator[socket.socket]:
    """A connection whose request is begun and not finished."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), PATIENCE) as found:
        found.sendall(first)
        yield found


def closed(one: socket.socket) -> bool:
    """Whether the server has ended a connection that it owed nothing."""
    one.setblocking(False)
    try:
        return one.recv(4096) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def trickled(one: socket.socket, more: bytes) -> bool:
    """A byte more each time, which prolongs nothing; whether the server has ended it."""
    try:
        one.send(more)
    except ConnectionError:
        return True
    return closed(one)


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with room for 105 connections."""
    monkeypatch.setenv("TAPELINE_SERVE_CLIENTS", "5")
    with served(tmp_path) as address:
        yield address


def test_half_open_requests_take_no_place_from_others(few: str) -> None:
    with ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(opened(few))
        for _ in range(3):
            assert httpx.get(f"{few}/healthz", timeout=PATIENCE).status_code == 200


def test_half_open_bodies_take_no_place_from_others(few: str) -> None:
    body = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n\r\ntoken="
    with ExitStack() as stack:
        for _ in range(150):
            stack.enter_context(opened(few, body))
        assert httpx.get(f"{few}/healthz", timeout=PATIENCE).status_code == 200


def test_one_address_gets_so_many_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_CONNECTIONS_PER_ADDRESS", "10")
    with served(tmp_path) as address, ExitStack() as stack:
        many = [stack.enter_context(opened(address)) for _ in range(40)]
        wait_for(lambda: sum(map(closed, many)) >= 30)
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE).status_code == 200
        streams = [
            stack.enter_context(httpx.stream("GET", f"{address}/api/events", timeout=PATIENCE))
            for _ in range(10)
        ]
        assert {one.status_code for one in streams} == {200}
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE).status_code == 503


@pytest.mark.parametrize("first", [b"", HALF], ids=["nothing", "half a header"])
def test_a_request_that_does_not_come_is_not_waited_for(
    first: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_REQUEST_SECONDS", "0.5")
    with served(tmp_path) as address, opened(address, first) as one:
        wait_for(lambda: trickled(one, b"x" if first else b""))


def test_a_request_that_trickles_behind_a_good_one_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_REQUEST_SECONDS", "0.5")
    whole = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(tmp_path) as address, opened(address, whole) as one:
        assert one.recv(4096).startswith(b"HTTP/1.1 200")
        one.sendall(HALF)
        wait_for(lambda: trickled(one, b"x"))


def test_a_stream_lives_longer_than_a_request_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_SERVE_REQUEST_SECONDS", "0.5")
    with (
        served(tmp_path) as address,
        httpx.stream("GET", f"{address}/api/events", timeout=PATIENCE) as stream,
    ):
        said = stream.iter_bytes()
        text = b""
        while b": alive" not in text:  # which comes after ten seconds
            text += next(said)


def test_a_request_has_a_limited_size(few: str) -> None:
    """Also one that comes whole in one packet."""
    header = {"x-long": "x" * 20_000}
    assert httpx.get(f"{few}/healthz", headers=header).status_code in (400, 431)
    assert httpx.get(f"{few}/{'x' * 6_000}").status_code == 414


class Unread(asyncio.Transport):
    """A connection whose other side reads nothing."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1), "sockname": ("192.0.2.2", 2)})
        self.ended = asyncio.Event()

    def abort(self) -> None:
        self.ended.set()


def test_an_answer_that_nobody_reads_is_not_waited_for() -> None:
    limits = Limits(10, 10, 1000.0, 0.01, Proxies(""))

    async def unread() -> None:
        config = uvicorn.Config(lambda: None, log_config=None)
        one = connections_of(limits)(config, uvicorn.Server(config).server_state, {})
        transport = Unread()
        one.connection_made(transport)
        assert limits.open["192.0.2.1"] == 1
        one.pause_writing()
        await transport.ended.wait()

    # in a thread of its own: the browser's tests leave their event loop running in this one
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(asyncio.wait_for(unread(), PATIENCE))).result()
    assert (limits.open.total(), limits.waiting) == (0, {})
