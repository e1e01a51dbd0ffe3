"""Limits of connections: how many, how long a request may take, how long a response may take.

A client that opens connections and never finishes a request ("slow loris") is disconnected after a
time limit, or at once when all places are taken and another client needs one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tapeline.serve.proxies import Proxies

HEADER_BYTES = 16 * 1024


@dataclass
class Limits:
    """Limits shared by all connections of a server. A trusted proxy has no limit per address."""

    most: int
    most_per_address: int
    request_seconds: float
    answer_seconds: float
    proxies: Proxies
    open: Counter[str] = field(default_factory=Counter)
    # Connections without a complete request, oldest first; an ordered set.
    waiting: dict[LimitedConnection, None] = field(default_factory=dict)

    def make_room(self, address: str) -> bool:
        """Whether one more connection fits, if necessary by closing one without a request."""
        if not self.proxies.trust(address) and self.open[address] >= self.most_per_address:
            return self._close_one(address)
        return self.open.total() < self.most or self._close_one(None)

    def _close_one(self, address: str | None) -> bool:
        for one in self.waiting:
            if address is None or address == one.address:
                one.give_up()
                return True
        return False


class LimitedConnection(H11Protocol):
    """A connection that closes when its request or its client takes too long."""

    limits: Limits  # set on a subclass for each server

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.address = ""
        self._counted = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self.limits.make_room(self.address):
            self.limit_concurrency = 0  # uvicorn answers with 503 and closes
        super().connection_made(transport)
        self._counted = True
        self.limits.open[self.address] += 1
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and self.conn.their_state is h11.IDLE:
            self._wait_for_request()
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self._counted:
            self.limits.waiting[self] = None  # kept alive, and closed if its place is needed
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.answer_seconds, self.give_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def give_up(self) -> None:
        """Close at once, without waiting for the client."""
        self._leave()
        self.transport.abort()

    def _wait_for_request(self) -> None:
        self.limits.waiting[self] = None
        self._timer = self.loop.call_later(self.limits.request_seconds, self.give_up)

    def _look(self) -> None:
        """Stop the timer when the request is complete."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.limits.waiting.pop(self, None)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _leave(self) -> None:
        self.limits.waiting.pop(self, None)
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        self._timer = self._unread = None
        if self._counted:
            self._counted = False
            self.limits.open[self.address] -= 1
            if not self.limits.open[self.address]:
                del self.limits.open[self.address]


def connections_of(limits: Limits) -> type[LimitedConnection]:
    """The protocol class of one server; its connections share these limits."""
    return type("Connection", (LimitedConnection,), {"limits": limits})
