"""The demo: a simulated trading day, the trades pipeline, and its summary live in the terminal."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from tapeline.books import Books
from tapeline.books.status import Status, read_status
from tapeline.broker import Broker
from tapeline.connect.kafka import client_options
from tapeline.declare.source import SomeIntakes
from tapeline.errors import OperationError, TapelineError
from tapeline.operate.runner import Runner, now
from tapeline.plan import Plan
from tapeline.settings import FILE, Settings, load_settings
from tapeline.show import readable
from tapeline.terminal import Terminal, styled
from tapeline.trades.delivery import play, write_truth
from tapeline.trades.markets import chosen
from tapeline.trades.reference import read_instruments, write_reference
from tapeline.trades.settlement import latest_session
from tapeline.trades.simulator import Day, simulate
from tapeline.trades.topic_delivery import Topic, play_to_topic
from tapeline.words import counted

WINDOWS_SHOWN = 14
REFRESH_SECONDS = 0.5
PLAIN_EVERY_SECONDS = 5.0
DAY_SECONDS = 300.0
TRADES = "tapeline.trades"


def play_day(
    target: Path | Topic,
    reference: Path,
    day: Day,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Play a trading day into a folder or a topic; what it will send is written down first."""
    years = (day.date.year - 1, day.date.year + 1)
    write_reference(reference, years, markets=chosen())
    instruments = read_instruments(reference / "instruments.csv")
    truth = reference / f"truth-{day.date}-{day.seed}-{day.trades}.jsonl"
    if not truth.exists():
        write_truth(simulate(day, instruments), truth)
    if isinstance(target, Path):
        return play(day, target, seconds, sleep, time.monotonic, instruments)
    return play_to_topic(day, target, seconds, sleep, time.monotonic, instruments)


def latest_day(today: date, trades: int, seed: int) -> Day:
    """The latest trading day before today: an accelerated day must not be from the future."""
    home = chosen()[0].venues[0].code
    return Day(seed=seed, date=latest_session(today, home), trades=trades, corrections=0.005)


COMMAND = [sys.executable, "-m", "tapeline"]
SETTINGS_MARK = "# Written by 'tapeline demo --kafka' at every start: what you change here is lost."
TOPIC = "trades"
# In a day of minutes a moment holds a quarter of an hour: of several partitions, read one after
# the other, most trades would be late.
PARTITIONS = 1


@contextmanager
def demo_broker(folder: Path, console: Terminal) -> Iterator[None]:
    """Run a broker for the demo, with a topic and settings for both; stop it afterwards."""
    file = folder / FILE
    if file.exists() and not file.read_text(encoding="utf-8").startswith(SETTINGS_MARK):
        raise OperationError(
            f"{file} exists and was not written by the demo, which needs its own. "
            "Choose another --folder."
        )
    broker = Broker(folder / "broker")
    console.print("Starting a local Kafka broker (a few seconds)")
    try:
        broker.start()
        broker.make_topic(TOPIC, PARTITIONS)
        address = broker.bootstrap_servers
        file.write_text(
            f'{SETTINGS_MARK}\n[kafka]\nbrokers = "{address}"\n\n'
            f'[pipeline.trades]\ntopics = "{TOPIC}"\n',
            encoding="utf-8",
        )
        if load_settings(folder).kafka.brokers != address:
            raise OperationError(
                "TAPELINE_KAFKA_BROKERS names other brokers than the demo's own. "
                "Unset it for the demo."
            )
        console.print("Trades go through topic", styled(TOPIC, "bold"), f"at {address}")
        yield
    finally:
        broker.stop()


def free_port(wanted: int) -> int:
    """This port of loopback, or any other if it is taken."""
    for port in (wanted, 0):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(one.getsockname()[1])
    raise OperationError("no port is free on 127.0.0.1. Stop a program that listens there.")


@dataclass(frozen=True)
class _Targets(SomeIntakes):
    """Where the simulator sends."""

    settings: Settings

    def from_folder(self, files: Any) -> Path:
        return self.settings.within(files.path)

    def from_topics(self, kafka: Any) -> Topic:
        return Topic(kafka.names[0], client_options(self.settings.kafka))

    def other(self, path: str) -> Path:
        raise OperationError(f"the demo cannot send to {path}. Use files or Kafka.")


class Stopped(Exception):
    """The demo ends while the simulator sleeps."""


class Demo:
    """Simulator, pipeline and view in one process."""

    def __init__(
        self, plan: Plan, settings: Settings, console: Terminal, trades: int, seed: int
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._console = console
        self._day = latest_day(now().date(), trades, seed)
        self._currency = plan.pipeline.pages["trade_summary"].facts["main_currency"]
        self._stop = threading.Event()
        self._failure: TapelineError | None = None
        self._books = Books(plan, settings.home(plan.name))

    def run(self, seconds: float | None) -> None:
        """Run for this many seconds, or until Ctrl-C."""
        self._settings.project.mkdir(parents=True, exist_ok=True)
        self._console.print("[1/3] Reference data: instruments, clients, settlement calendar")
        reference = self._settings.within("reference")
        write_reference(reference, years=(now().year - 1, now().year + 1), markets=chosen())
        self._console.print("[2/3] Starting Spark and preparing the steps (about ten seconds)")
        with Runner(self._plan, self._settings) as runner, self._served() as address:
            length = (seconds * 0.7) if seconds else DAY_SECONDS
            self._console.print(
                f"[3/3] Playing a trading day of {counted(self._day.trades, 'trade')} in "
                f"{length:.0f} s. Press Ctrl-C to stop; the next start continues"
            )
            self._console.print("Open the chart at", styled(address, "bold"))
            if runner.spark_ui:
                self._console.print("Open Spark's UI at", styled(runner.spark_ui, "bold"))
            threads = [
                threading.Thread(target=self._simulate, args=(reference, length), daemon=True),
                threading.Thread(target=self._run, args=(runner,), daemon=True),
            ]
            for thread in threads:
                thread.start()
            try:
                self._watch(time.monotonic() + seconds if seconds else None)
            except KeyboardInterrupt:
                self._console.print("Stopping ...")
            finally:
                self._stop.set()
                runner.stop()
                for thread in threads:
                    thread.join()
            failure = self._failure or runner.failure
            if failure is not None:
                raise failure
        self._say_what_waits()

    def _say_what_waits(self) -> None:
        """A slow machine may not finish the day in time: the numbers shown are not final then."""
        state = read_status(self._books.layout.status) or Status()
        waiting = state.lag_records
        if waiting or state.drop_files:
            self._console.print(
                styled(
                    f"Stopped before the end of the day: {counted(waiting, 'record')} "
                    f"and {counted(state.drop_files, 'file')} are waiting. "
                    "The next start processes them.",
                    "yellow",
                ),
                soft_wrap=True,
            )

    @contextmanager
    def _served(self) -> Iterator[str]:
        """The pages, by a server of their own: it takes nothing from the pipeline's process."""
        port = free_port(self._settings.serve.port)
        settings = self._settings
        places = ["--project", str(settings.project), "--root", str(settings.root)]
        with (settings.project / "serve.log").open("ab") as log:
            child = subprocess.Popen(
                [*COMMAND, "serve", TRADES, *places, "--port", str(port)],
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            child.terminate()
            child.wait()

    def _simulate(self, reference: Path, length: float) -> None:
        def sleep(seconds: float) -> None:
            if self._stop.wait(seconds):
                raise Stopped

        connector = self._plan.pipeline.sources["raw_trades"].connector
        target: Path | Topic = connector.taken_by(_Targets(self._settings))
        try:
            play_day(target, reference, self._day, length, sleep)
        except Stopped:
            return
        except Exception as error:  # noqa: BLE001 - whatever ends the simulator ends the demo
            self._failure = OperationError(
                f"the simulator failed: {error}. Correct that and start the demo again."
            )
            self._stop.set()

    def _run(self, runner: Runner) -> None:
        try:
            runner.run()
        except TapelineError as error:
            runner.failure = error
            self._stop.set()

    def _watch(self, deadline: float | None) -> None:
        def over() -> bool:
            return self._stop.is_set() or (deadline is not None and time.monotonic() > deadline)

        if not self._console.is_terminal:
            while not over():
                self._stop.wait(PLAIN_EVERY_SECONDS)
                self._console.print(self._line())
            return
        with Live(self._view(), console=self._console, screen=False, auto_refresh=False) as live:
            while not over():
                self._stop.wait(REFRESH_SECONDS)
                live.update(self._view(), refresh=True)

    def _line(self) -> str:
        counts = self._counts()
        state = read_status(self._books.layout.status) or Status()
        words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return (
            f"batch {state.batch}: {words}; "
            f"lag {counted(state.lag_records, 'record')}, "
            f"{state.lag_seconds:.1f} s; batch {state.batch_milliseconds or 0} ms"
        )

    def _counts(self) -> dict[str, int]:
        commit = self._books.cut().commit
        trades = commit.total("trades")
        verdicts = trades.verdicts
        enriched = commit.total("enriched_trades").verdicts
        return {
            "arrived": sum(verdicts.values()),
            "kept": verdicts.get("kept", 0),
            "duplicate": verdicts.get("duplicate", 0),
            "quarantined": verdicts.get("quarantined", 0) + enriched.get("quarantined", 0),
            "late": trades.causes.get("late", 0),
        }

    def _view(self) -> Group:
        state = read_status(self._books.layout.status) or Status()
        cut = self._books.cut()
        if not cut.batch:
            return Group(Panel("Waiting for the first trades ...", title="trade summary"))
        windows = self._books.read("running_totals").to_pylist()
        due = self._books.read("due").to_pylist()
        head = (
            f"batch {cut.batch}   published {_clock(cut.at)}   "
            f"lag {counted(state.lag_records, 'record')}, "
            f"{state.lag_seconds:.1f} s   "
            f"batch time {state.batch_milliseconds or 0} ms   "
            f"{state.records_per_second or 0:,.0f} records/s"
        )
        counts = "   ".join(f"{k} {v:,}" for k, v in self._counts().items())
        shown = Group(head, counts, _windows(windows, self._currency), _due(due))
        if state.failure:
            shown = Group(styled(state.failure, "red"), shown)
        title = styled(f"trade summary, {self._currency}", "")
        return Group(Panel(shown, title=title))


def _windows(rows: list[dict[str, Any]], currency: str) -> Table:
    table = Table(
        "window (UTC)", "total buy", "total sell", "net to settle", "running buy", "running sell",
        "running net", "trades",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    names = ("total_buy", "total_sell", "net_to_settle", "running_buy", "running_sell",
             "running_net", "trades")  # fmt: skip
    main = [row for row in rows if row["currency"] == currency]
    for row in main[-WINDOWS_SHOWN:]:
        start: datetime = row["window_start"]
        table.add_row(f"{start:%Y-%m-%d %H:%M}", *[readable(row[name]) for name in names])
    return table


def _due(rows: list[dict[str, Any]]) -> Table:
    table = Table("settles on", "currency", "net to settle", "fees", "due", "", title="due")
    for column in table.columns[2:5]:
        column.justify = "right"
    largest = sorted(rows, key=lambda row: abs(Decimal(row["due"])), reverse=True)[:6]
    for row in sorted(largest, key=lambda row: (row["settles_on"], row["currency"])):
        values = [readable(row[name]) for name in ("net_to_settle", "fees", "due")]
        named = (readable(row["currency"]), *values, readable(row["direction"]))
        table.add_row(str(row["settles_on"]), *named)
    return table


def _clock(moment: datetime | None) -> str:
    return f"{moment:%H:%M:%S}" if moment else "-"
