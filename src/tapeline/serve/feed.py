"""The live feed: one event per published batch, sent to every client in order and without gaps.

The id of an event is its batch number. A client that reconnects sends the last id it saw and gets
the events after it. A client that lags too far gets the event 'anew': it must reload everything.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from tapeline.books import Books
from tapeline.books.commits import CommitRow, read_commits
from tapeline.errors import OperationError
from tapeline.show import plain
from tapeline.store.delta_files import log_changed_at

LOOK_SECONDS = 0.02
ALIVE_SECONDS = 10.0
# Events kept for clients that reconnect.
KEPT_EVENTS = 1_000
# A client with this many unread events is too slow.
WAITING_EVENTS = 200


class TooManyClients(OperationError):
    """The feed is full."""


class Feed:
    """One follower for all clients of a server."""

    def __init__(self, books: Books, most_clients: int) -> None:
        self._books = books
        self._folder = books.layout.commits
        self._most_clients = most_clients
        self._events: deque[tuple[int, bytes]] = deque(maxlen=KEPT_EVENTS)
        self._clients: set[asyncio.Queue[tuple[int, bytes] | None]] = set()
        self._last = 0
        self._at: str | None = None  # when that batch was published
        self._seen: int | None = None
        self.problem: str | None = None

    @property
    def clients(self) -> int:
        return len(self._clients)

    @property
    def last(self) -> int:
        """The newest batch that was sent."""
        return self._last

    async def run(self) -> None:
        """Follow the books until cancelled. If they cannot be read, try again."""
        while True:
            try:
                changed = log_changed_at(self._folder)
                if changed != self._seen:
                    for event in await asyncio.to_thread(self._news):
                        self._tell(event)
                    self._seen = changed
                self.problem = None
            except Exception as error:  # noqa: BLE001 - the next try may succeed
                self.problem = f"{type(error).__name__}: {error}"
                await asyncio.sleep(1.0)
            await asyncio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """Close all streams; the clients reconnect."""
        for client in list(self._clients):
            _put(client, None)

    async def stream(self, after: int | None) -> AsyncIterator[bytes]:
        """Events after a batch, as they are published (default: from now on)."""
        if len(self._clients) >= self._most_clients:
            raise TooManyClients(
                f"the live feed is full: {self._most_clients} clients are connected. Try again "
                "later, or raise the setting serve.clients."
            )
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
            yield _event("hello", self._now(), self._last)
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
        """The events after a batch, or one event that tells the client to reload everything."""
        kept = [event for event in self._events if event[0] > after]
        first = kept[0][0] if kept else self._last + 1
        if after > self._last or first > after + 1:
            event = _event("anew", self._now(), self._last)
            return [(self._last, event)]
        return kept

    def _now(self) -> dict[str, Any]:
        return {"batch": self._last, "at": self._at}

    def _tell(self, event: tuple[int, bytes]) -> None:
        self._last = event[0]
        self._events.append(event)
        for client in list(self._clients):
            _put(client, event)

    def _news(self) -> list[tuple[int, bytes]]:
        """Events of the batches that were published since the last look, in order."""
        published = self._books.cut().batch
        if published < self._last:  # other books in the same place
            self._last, self._at = 0, None
            self._events.clear()
        since = max(self._last + 1, published - KEPT_EVENTS + 1)
        if published < since:
            return []
        rows = read_commits(self._books.layout.commits, since, published)
        times = {row.batch: row.at for row in rows if row.publishes}
        self._at = plain(times.get(published))
        return [(row.batch, _batch_event(row, times.get(row.batch))) for row in rows if row.decides]


def _batch_event(row: CommitRow, at: Any) -> bytes:
    commit = row.commit
    facts = {
        "batch": row.batch,
        "at": plain(at),
        "records": commit.records,
        "milliseconds": commit.milliseconds,
        "moved": sorted(name for name, counts in commit.tables.items() if counts.of_summary),
    }
    return _event("batch", facts, row.batch)


def _event(name: str, facts: dict[str, Any], number: int) -> bytes:
    return f"event: {name}\nid: {number}\ndata: {json.dumps(facts)}\n\n".encode()


def _put(client: asyncio.Queue[tuple[int, bytes] | None], event: tuple[int, bytes] | None) -> None:
    """Send an event. A client that is too slow is disconnected; it reconnects by its last id."""
    try:
        client.put_nowait(event)
    except asyncio.QueueFull:
        while not client.empty():
            client.get_nowait()
        client.put_nowait(None)
