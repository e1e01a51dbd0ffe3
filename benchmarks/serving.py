"""The server's questions: many clients, a page on a long history, the whole way to a browser."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil

from benchmarks.generate import Input, bench_folder
from benchmarks.latency import Sent, percentile, send
from benchmarks.measure import running
from tapeline.books.commits import read_commits

Facts = dict[str, Any]
COMMAND = [sys.executable, "-m", "tapeline"]
CHROMIUM = ["/usr/bin/chromium", "/usr/bin/chromium-browser"]


@contextmanager
def served(root: Path) -> Iterator[tuple[str, psutil.Process]]:
    """`tapeline serve` on any free port: its address, and its process."""
    places = ["--project", str(root), "--root", str(root / "books"), "--port", "0", "--json"]
    log = (bench_folder() / "logs" / "serve.log").open("wb")
    child = subprocess.Popen(
        [*COMMAND, "serve", "tapeline.trades", *places],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert child.stdout is not None
        text = ""
        while "}" not in text:
            text += child.stdout.readline()
        yield json.loads(text)["address"], psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait(20)
        log.close()


@contextmanager
def live(root: Path, reference: Path) -> Iterator[Path]:
    """The trades pipeline running; gives its landing folder."""
    arguments = ["benchmarks.ours", "live", "--root", str(root), "--reference", str(reference)]
    with running(arguments, bench_folder() / "logs" / "ours-live.log") as arm:
        arm.wait_for("ready", 180)
        yield root / "landing"
        arm.stop()


async def _listen(address: str, seen: list[tuple[int, float]]) -> None:
    """One client: the batches it was told of, and when."""
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    request = (
        f"GET /api/events HTTP/1.1\r\nHost: {place.netloc}\r\nAccept: text/event-stream\r\n\r\n"
    )
    writer.write(request.encode())
    batch = False
    try:
        while line := await reader.readline():
            if line.startswith(b"event: "):
                batch = line == b"event: batch\n"
            elif batch and line.startswith(b"id: "):
                seen.append((int(line[4:]), time.time()))
    finally:
        writer.close()


def many_clients(made: Input, root: Path, clients: int, seconds: float) -> Facts:
    """So many event streams while the pipeline works off a steady stream of files."""
    told: list[list[tuple[int, float]]] = [[] for _ in range(clients)]

    async def listen(address: str, until: threading.Event) -> None:
        tasks = [asyncio.create_task(_listen(address, seen)) for seen in told]
        while not until.is_set():
            await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with live(root, made.reference) as landing, served(root) as (address, server):
        over = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(listen(address, over)))
        thread.start()
        time.sleep(3)
        begin = time.monotonic()
        cpu = sum(server.cpu_times()[:2])
        count = int(seconds * 2)
        sents = [Sent(0, begin + number * 0.5) for number in range(count)]
        send(made.files[:count], landing, sents)
        time.sleep(3)
        cpu = sum(server.cpu_times()[:2]) - cpu
        took = time.monotonic() - begin
        rss = server.memory_info().rss
        over.set()
        thread.join()
    rows = read_commits(root / "books" / "trades" / "commits")
    published = {row.batch: row.at.timestamp() for row in rows if row.publishes}
    missed = sum(len(set(published) - {batch for batch, _ in seen}) for seen in told)
    waits = [at - published[batch] for seen in told for batch, at in seen]
    return {
        "clients": clients,
        "commits": len(published),
        "missed": missed,
        "commit_to_event_ms_p50": round(median(waits) * 1000, 1),
        "commit_to_event_ms_p95": round(percentile(waits, 95) * 1000, 1),
        "server_cores": round(cpu / took, 3),
        "server_rss_mb": rss >> 20,
    }


def page_on_history(root: Path) -> Facts:
    """What the trade summary's page asks for when it opens, one after the other."""
    first: Facts = {}
    with served(root) as (address, _):

        def ask(path: str) -> Any:
            with urlopen(f"{address}/{path}", timeout=60) as answer:
                return json.loads(answer.read())

        with urlopen(f"{address}/healthz", timeout=60):
            pass
        for turn in ("cold", "warm"):
            started = time.perf_counter()
            pipeline = ask("api/pipeline")
            days = ask("api/read/market_days?limit=10000")["rows"]
            used = set(ask("api/values/running_totals/day")["values"])
            for column in ("currency", "terminal"):
                ask(f"api/values/trade_summary/{column}")
            day = [row for row in days if row["day"] in used][-1]
            rows = ask(
                f"api/read/trade_summary?where=window_start>={day['starts_at']}"
                f"&where=window_start<{day['ends_at']}&where=currency=USD&group=window_start"
                "&sum=total_buy&sum=total_sell&sum=fees&sum=trades&limit=10000"
            )["rows"]
            since = max(0, pipeline["batch"] - 2)
            ask(f"api/read/trades?group=terminal&max=traded_at&since_batch={since}")
            first[f"{turn}_seconds"] = round(time.perf_counter() - started, 3)
    return {"days": len(used), "windows": len(rows), **first}


WATCH = """
() => {
  window.seen = [];
  const look = () => {
    const cells = [...document.querySelectorAll("#twin tbody tr td:nth-child(5)")];
    const numbers = cells.map((cell) => Number(cell.textContent.replace(/\\D/g, "")));
    const total = numbers.reduce((sum, one) => sum + one, 0);
    window.seen.push([performance.timeOrigin + performance.now(), total]);
  };
  new MutationObserver(look).observe(document.getElementById("twin"), { childList: true });
}
"""


def to_the_browser(made: Input, root: Path, files: int, warm_up: int) -> Facts:
    """One trade a file, two files a second: from the rename to the browser's table."""
    from playwright.sync_api import sync_playwright

    chromium = next(path for path in CHROMIUM if Path(path).exists())
    renamed: list[float] = []
    with (
        live(root, made.reference) as landing,
        served(root) as (address, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        _drop_trade(landing, 0)
        page.goto(address)
        page.wait_for_selector("#twin tbody tr", timeout=60_000)
        page.evaluate(WATCH)
        for number in range(1, files + 1):
            renamed.append(_drop_trade(landing, number))
            page.wait_for_timeout(500)
        page.wait_for_timeout(3000)
        seen = page.evaluate("window.seen")
        browser.close()
    waits = []
    for number, at in enumerate(renamed, start=1):
        shown = next((moment for moment, total in seen if total >= number + 1), None)
        waits.append((shown / 1000 - at) if shown else float("inf"))
    measured = waits[warm_up:]
    return {
        "files": len(measured),
        "never_seen": sum(one == float("inf") for one in measured),
        "p50_seconds": round(median(measured), 3),
        "p95_seconds": round(percentile(measured, 95), 3),
    }


def _drop_trade(landing: Path, number: int) -> float:
    """A trade of a past session, renamed into place; gives the moment."""
    at = datetime(2025, 6, 3, 14, 30, tzinfo=UTC) + timedelta(seconds=number)
    trade = {
        "trade_id": f"browser-{number}", "version": 1, "event": "NEW", "traded_at": at.isoformat(),
        "side": "BUY", "instrument": "ZKTF", "quantity": "1", "price": "10", "currency": "USD",
        "client": "C000001", "terminal": "WEB", "fees": "0",
    }  # fmt: skip
    landing.mkdir(parents=True, exist_ok=True)
    hidden = landing / f".{number:06}"
    hidden.write_text(json.dumps(trade) + "\n")
    moment = time.time()
    hidden.rename(landing / f"browser-{number:06}.jsonl")
    return moment
