"""The live feed: every commit, in order, to every client, also to one that comes again."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tapeline.serve import feed as feeds
from tapeline.serve.feed import Feed, TooManyClients
from tapeline.settings import Settings
from tapeline.testing import Books, plan_of
from tests.support.brokerage import Brokerage, trade


def events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_every_commit_is_told_and_a_client_that_comes_again_misses_none(fresh: Brokerage) -> None:
    with fresh.served() as address:
        with httpx.stream("GET", f"{address}/api/events", timeout=30) as answer:
            told = events(answer.iter_lines())
            assert next(told) == ("hello", {"batch": 0, "at": None})
            fresh.feed(trade("a", "13 14:35"))
            name, first = next(told)
            assert (name, first["batch"], first["records"]) == ("batch", 1, 1)
            assert first["moved"] == ["settlement_due", "trade_summary"]
        for number in (2, 3, 4):
            fresh.feed(trade(f"a{number}", "13 14:35"))
        headers = {"last-event-id": "2"}
        with httpx.stream("GET", f"{address}/api/events", headers=headers, timeout=30) as answer:
            told = events(answer.iter_lines())
            batches = []
            while 4 not in batches:
                name, facts = next(told)
                batches += [facts["batch"]] if name == "batch" else []
            assert batches == [3, 4]
            assert facts["at"] is not None
        with httpx.stream("GET", f"{address}/api/events", timeout=30) as answer:
            assert next(events(answer.iter_lines())) == ("hello", {"batch": 4, "at": facts["at"]})
        with httpx.stream("GET", f"{address}/api/events?after=900", timeout=30) as answer:
            assert next(events(answer.iter_lines()))[0] == "anew"


def test_the_server_ends_although_a_client_listens(fresh: Brokerage) -> None:
    seen = threading.Event()

    def listen(address: str) -> None:
        try:
            with httpx.stream("GET", f"{address}/api/events", timeout=30) as answer:
                for _ in answer.iter_lines():
                    seen.set()
        except httpx.HTTPError:
            return

    with fresh.served() as address:
        thread = threading.Thread(target=listen, args=(address,))
        thread.start()
        assert seen.wait(20)
    thread.join(20)
    assert not thread.is_alive()


def test_a_full_feed_refuses_and_a_slow_client_is_let_go(tmp_path: Path) -> None:
    async def scenario() -> None:
        plan = plan_of("tapeline.trades", Settings())
        feed = Feed(Books(plan, tmp_path), most_clients=1)
        stream = await feed.stream(None)
        with pytest.raises(TooManyClients):
            await feed.stream(None)
        assert (await anext(stream)).startswith(b"retry")
        assert b"hello" in await anext(stream)
        for number in range(feeds.WAITING_EVENTS + 5):
            feed._tell((number + 1, b"event"))
        assert [part async for part in stream] == []  # let go: it comes again with what it saw
        assert feed.clients == 0
        again = await feed.stream(3)
        told = [await anext(again) for _ in range(5)]
        assert told[1:4] == [b"event"] * 3

    # In a thread of its own: the browser's tests leave a loop behind in this one.
    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, scenario()).result()
