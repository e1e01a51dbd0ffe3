"""The demo: a simulated trading day, the trades pipeline, and its summary live in the terminal."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from tapeline.books import Books
from tapeline.broker import Broker
from tapeline.connect.kafka import Kafka, client_options
from tapeline.errors import OperationError, TapelineError
from tapeline.plan import Plan
from tapeline.run.runner import Runner, now
from tapeline.settings import FILE, Settings, load_settings
from tapeline.show import readable
from tapeline.trades.delivery import play, write_truth
from tapeline.trades.markets import chosen
from tapeline.trades.reference import read_instruments, write_reference
from tapeline.trades.settlement import latest_session
from tapeline.trades.simulator import Day, simulate
from tapeline.trades.topic_delivery import Topic, play_to_topic
from tapeline.watch.status import read_status

WINDOWS_SHOWN = 14
REFRESH_SECONDS = 0.5
PLAIN_EVERY_SECONDS = 5.0
DAY_SECONDS = 300.0


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
def demo_broker(folder: Path, console: Console) -> Iterator[None]:
    """A broker of the demo's own, with its topic, and settings that name both; ended at the end."""
    file = folder / FILE
    if file.exists() and not file.read_text(encoding="utf-8").startswith(SETTINGS_MARK):
        raise OperationError(
            f"{file} is yours, and a demo with a broker writes its own. Choose another --folder."
        )
    broker = Broker(folder / "broker")
    console.print("Starting a Kafka broker of the demo's own (a few seconds)")
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
                "the environment names other brokers than the demo's own. Unset "
                "TAPELINE_KAFKA_BROKERS for the demo."
            )
        console.print(f"Trades go through topic [bold]{TOPIC}[/bold] at {address}")
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
    raise OperationError("no port of 127.0.0.1 is free.")


class Stopped(Exception):
    """The demo ends while the simulator sleeps."""


class Demo:
    """Simulator, pipeline and view in one process."""

    def __init__(
        self, plan: Plan, settings: Settings, console: Console, trades: int, seed: int
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
        """Run for so many seconds, or until Ctrl-C."""
        self._settings.project.mkdir(parents=True, exist_ok=True)
        self._console.print("[1/3] Reference data: instruments, clients, settlement calendar")
        reference = self._settings.within("reference")
        write_reference(reference, years=(now().year - 1, now().year + 1), markets=chosen())
        self._console.print("[2/3] Starting Spark and preparing the steps (about ten seconds)")
        with Runner(self._plan, self._settings) as runner, self._served() as address:
            length = (seconds * 0.7) if seconds else DAY_SECONDS
            self._console.print(
                f"[3/3] Playing a trading day of {self._day.trades:,} trades in {length:.0f} s; "
                "Ctrl-C stops, starting again goes on"
            )
            self._console.print(f"The chart is at [bold]{address}[/bold]")
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
        """On a slow machine the time is over before the day is: the numbers are not its last."""
        state = read_status(self._books.layout.status) or {}
        waiting = state.get("lag_records", 0)
        if waiting or state.get("drop_files"):
            self._console.print(
                f"[yellow]The time was over before the day was: {waiting:,} records and "
                f"{state.get('drop_files', 0):,} files wait. Starting again goes on with them.",
                soft_wrap=True,
            )

    @contextmanager
    def _served(self) -> Iterator[str]:
        """The pages, by a server of their own: it takes nothing from the pipeline's process."""
        port = free_port(self._settings.serve.port)
        settings = self._settings
        words = ["serve", "--project", str(settings.project), "--root", str(settings.root)]
        with (settings.project / "serve.log").open("ab") as log:
            child = subprocess.Popen(
                [*COMMAND, *words, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=log
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
        target: Path | Topic = self._settings.within("landing")
        if isinstance(connector, Kafka):
            target = Topic(connector.names[0], client_options(self._settings.kafka))
        try:
            play_day(target, reference, self._day, length, sleep)
        except Stopped:
            return
        except Exception as error:  # noqa: BLE001 - whatever ends the simulator ends the demo
            self._failure = OperationError(f"the simulator failed: {error}")
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
        state = read_status(self._books.layout.status) or {}
        words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        return (
            f"batch {state.get('batch', 0)}: {words}; lag {state.get('lag_records', 0)} records, "
            f"{state.get('lag_seconds', 0):.1f} s; batch {state.get('batch_milliseconds') or 0} ms"
        )

    def _counts(self) -> dict[str, int]:
        totals = self._books.totals()
        trades = totals.get("trades", {})
        verdicts = trades.get("verdicts", {})
        behind = totals.get("enriched_trades", {}).get("verdicts", {})
        return {
            "arrived": sum(verdicts.values()),
            "kept": verdicts.get("kept", 0),
            "duplicate": verdicts.get("duplicate", 0),
            "quarantined": verdicts.get("quarantined", 0) + behind.get("quarantined", 0),
            "late": trades.get("causes", {}).get("late", 0),
        }

    def _view(self) -> Group:
        state = read_status(self._books.layout.status) or {}
        cut = self._books.cut()
        if not cut.batch:
            return Group(Panel("Waiting for the first trades ...", title="trade summary"))
        windows = self._books.read("running_totals").to_pylist()
        due = self._books.read("due").to_pylist()
        head = (
            f"batch [bold]{cut.batch}[/bold]   published {_clock(cut.at)}   "
            f"lag {state.get('lag_records', 0):,} records, {state.get('lag_seconds', 0):.1f} s   "
            f"batch time {state.get('batch_milliseconds') or 0} ms   "
            f"{state.get('records_per_second') or 0:,.0f} records/s"
        )
        counts = "   ".join(f"{k} [bold]{v:,}[/bold]" for k, v in self._counts().items())
        shown = Group(head, counts, _windows(windows, self._currency), _due(due))
        if state.get("failure"):
            shown = Group(f"[red]{state['failure']}", shown)
        return Group(Panel(shown, title=f"trade summary, {self._currency}"))


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
        table.add_row(str(row["settles_on"]), row["currency"], *values, row["direction"])
    return table


def _clock(moment: datetime | None) -> str:
    return f"{moment:%H:%M:%S}" if moment else "-"
