"""The live feed: follows the commits of the books and tells every client, in order, without gaps.

An event's id is its batch. A client that comes again says the last one it saw, and gets those
behind it; one that is too far behind, or too slow, is told to read everything anew.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.errors import OperationError
from tapeline.show import plain

LOOK_SECONDS = 0.02
ALIVE_SECONDS = 10.0
# So many events are kept for clients that come again.
KEPT_EVENTS = 1_000
# A client that lets so many wait is too slow.
WAITING_EVENTS = 200


class TooManyClients(OperationError):
    """The feed is full."""


class Feed:
    """One follower for all clients of a server."""

    def __init__(self, books: Books, most_clients: int) -> None:
        self._books = books
        self._log = books.layout.commits / "_delta_log"
        self._most_clients = most_clients
        self._events: deque[tuple[int, bytes]] = deque(maxlen=KEPT_EVENTS)
        self._clients: set[asyncio.Queue[tuple[int, bytes] | None]] = set()
        self._last = 0
        self._seen: int | None = None
        self.problem: str | None = None

    @property
    def clients(self) -> int:
        return len(self._clients)

    @property
    def last(self) -> int:
        """The newest batch that was told."""
        return self._last

    async def run(self) -> None:
        """Follow the books until cancelled; a table that is away for a moment is looked for."""
        while True:
            try:
                changed = _changed_at(self._log)
                if changed != self._seen:
                    for event in await asyncio.to_thread(self._news):
                        self._tell(event)
                    self._seen = changed
                self.problem = None
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may find it well
                self.problem = f"{type(error).__name__}: {error}"
                await asyncio.sleep(1.0)
            await asyncio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """End all streams: their clients come again."""
        for client in list(self._clients):
            _put(client, None)

    async def stream(self, after: int | None) -> AsyncIterator[bytes]:
        """Events behind a batch, as they come; without one, from now on."""
        if len(self._clients) >= self._most_clients:
            raise TooManyClients(f"{self._most_clients} clients follow already: come again later.")
        client: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(WAITING_EVENTS)
        self._clients.add(client)
        return self._told(client, after)

    async def _told(
        self, client: asyncio.Queue[tuple[int, bytes] | None], after: int | None
    ) -> AsyncIterator[bytes]:
        try:
            yield b"retry: 1000\n\n"
            told = self._last if after is None else after
            for number, event in self._missed(told):
                yield event
                told = number
            yield _event("hello", {"batch": self._last}, self._last)
            while True:
                try:
                    found = await asyncio.wait_for(client.get(), ALIVE_SECONDS)
                except TimeoutError:
                    yield b": alive\n\n"
                    continue
                if found is None:
                    return
                number, event = found
                if number > told:
                    yield event
                    told = number
        finally:
            self._clients.discard(client)

    def _missed(self, after: int) -> list[tuple[int, bytes]]:
        """The events behind a batch, or one that says: read everything anew."""
        kept = [event for event in self._events if event[0] > after]
        first = kept[0][0] if kept else self._last + 1
        if after > self._last or first > after + 1:
            anew = _event("anew", {"batch": self._last}, self._last)
            return [(self._last, anew)]
        return kept

    def _tell(self, event: tuple[int, bytes]) -> None:
        self._last = event[0]
        self._events.append(event)
        for client in list(self._clients):
            _put(client, event)

    def _news(self) -> list[tuple[int, bytes]]:
        """The batches that were published since the last look, in order."""
        published = self._books.cut().batch
        if published < self._last:  # other books in the same place
            self._last = 0
            self._events.clear()
        since = max(self._last + 1, published - KEPT_EVENTS + 1)
        if published < since:
            return []
        rows = read_commits(self._books.layout.commits, since, published)
        times = {r["batch"]: r["at"] for r in rows if r["event"] == "published"}
        return [
            (row["batch"], _batch_event(row, times.get(row["batch"])))
            for row in rows
            if row["event"] == "decided"
        ]


def _batch_event(row: dict[str, Any], at: Any) -> bytes:
    body = json.loads(row["body"])
    facts = {
        "batch": row["batch"],
        "at": plain(at),
        "records": sum(tape["records"] for tape in body["tapes"].values()),
        "milliseconds": body.get("milliseconds"),
        "moved": sorted(name for name, facts in body["tables"].items() if "measures" in facts),
    }
    return _event("batch", facts, row["batch"])


def _event(name: str, facts: dict[str, Any], number: int) -> bytes:
    return f"event: {name}\nid: {number}\ndata: {json.dumps(facts)}\n\n".encode()


def _put(client: asyncio.Queue[tuple[int, bytes] | None], event: tuple[int, bytes] | None) -> None:
    """A client that is too slow is let go: it comes again and says what it saw last."""
    try:
        client.put_nowait(event)
    except asyncio.QueueFull:
        while not client.empty():
            client.get_nowait()
        client.put_nowait(None)


def _changed_at(log: Any) -> int:
    try:
        return os.stat(log).st_mtime_ns
    except FileNotFoundError:
        return 0
