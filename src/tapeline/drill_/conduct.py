"""A drill: shuffle, repeat, delay and split the input, kill the process, and compare the books.

A seeded run. The brokerage's pipeline is fed by its simulator and compared with an independent
oracle over the truth that was written before any line was formatted. Any other pipeline is fed
with files of the user's, and compared with one static pass over them: no kill, no repeat, in order.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from tapeline.books import Books
from tapeline.connect import Files
from tapeline.errors import OperationError
from tapeline.plan import Plan, load_pipeline, resolve
from tapeline.run.failpoints import POINTS
from tapeline.settings import Settings
from tapeline.trades import oracle
from tapeline.trades.delivery import write_truth
from tapeline.trades.lines import line
from tapeline.trades.markets import chosen
from tapeline.trades.records import Day
from tapeline.trades.reference import make_instruments, write_reference
from tapeline.trades.settlement import latest_session
from tapeline.trades.simulator import simulate
from tapeline.watch.audit import audit
from tapeline.watch.status import read_status

START_SECONDS = 120.0
REPEATED_FILES = 0.05
DELAYED_LINES = 0.05
# Small batches: many decisions, many places to die at.
SMALL = {
    "TAPELINE_FLOW_RECORDS_PER_BATCH": "2000",
    "TAPELINE_FLOW_BYTES_PER_TAPE_BATCH": "200000",
    "TAPELINE_INTAKE_RECORDS_PER_PIECE": "1000",
    "TAPELINE_INTAKE_SETTLE_SECONDS": "0.2",
    "TAPELINE_HOUSEKEEPING_COMPACT_EVERY_BATCHES": "7",
    "TAPELINE_HOUSEKEEPING_BALANCES_EVERY_BATCHES": "5",
}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What somebody wants drilled."""

    target: str
    folder: Path
    seed: int = 1
    trades: int = 100_000
    kills: int = 50
    given: Path | None = None  # files of the user's own; else the simulator's


@dataclass
class Done:
    """What a drill did and found."""

    seed: int
    records: int = 0
    kills: list[dict[str, Any]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def facts(self) -> dict[str, Any]:
        points: dict[str, int] = {}
        for kill in self.kills:
            points[kill["at"]] = points.get(kill["at"], 0) + 1
        return {
            "seed": self.seed,
            "records": self.records,
            "kills": len(self.kills),
            "killed_at": points,
            "differences": self.differences,
            "seconds": round(self.seconds),
        }


class Drill:
    """One drill in a folder of its own."""

    def __init__(self, asked: Asked, say: Say) -> None:
        self._asked = asked
        self._say = say
        self._chance = Random(asked.seed)
        self._project = asked.folder / "drilled"
        self._done = Done(asked.seed)

    def run(self) -> Done:
        started = time.monotonic()
        shutil.rmtree(self._asked.folder, ignore_errors=True)
        self._project.mkdir(parents=True)
        self._take_project()
        settings = Settings(project=self._project, root=self._project / "books")
        plan = resolve(load_pipeline(self._target(), settings))
        drop = self._drop_folder(plan)
        files = self._files()
        self._say(f"{self._done.records:,} records in {len(files)} files, seed {self._asked.seed}")
        self._kill_again_and_again(files, drop, settings.home(plan.name))
        self._once(self._project)
        books = Books(plan, settings.home(plan.name))
        self._done.differences = self._compare(books)
        self._done.differences += [
            f"audit: {check.what}: {check.expected} is not {check.found} (batch {check.batch})"
            for check in audit(books, full=True)
            if not check.balances
        ]
        self._done.seconds = time.monotonic() - started
        return self._done

    # What goes in ---------------------------------------------------------------------------

    def _take_project(self) -> None:
        """The pipeline's own files, next to which the drilled books are kept."""
        if self._asked.given is None:
            return
        here = Path(self._asked.target).absolute().parent
        for path in here.iterdir():
            if path.suffix in (".py", ".toml", ".csv"):
                shutil.copy(path, self._project / path.name)
        if (here / "reference").is_dir():
            shutil.copytree(here / "reference", self._project / "reference")

    def _target(self) -> str:
        if self._asked.given is None:
            return self._asked.target
        return str(self._project / Path(self._asked.target).name)

    def _drop_folder(self, plan: Plan) -> Path:
        if len(plan.pipeline.sources) != 1:
            raise OperationError("a drill feeds one source; this pipeline has several.")
        (source,) = plan.pipeline.sources.values()
        if not isinstance(source.connector, Files):
            raise OperationError("a drill feeds files; this pipeline reads topics.")
        drop: Path = self._project / source.connector.path
        drop.mkdir(parents=True, exist_ok=True)
        return drop

    def _files(self) -> list[bytes]:
        """The contents of the files to deliver, in the order of delivery."""
        if self._asked.given is not None:
            whole = [path.read_bytes() for path in sorted(self._asked.given.iterdir())]
            if not whole:
                raise OperationError(f"{self._asked.given} holds no files to drill with.")
            self._done.records = sum(len(one.splitlines()) for one in whole)
            files = whole + [one for one in whole if self._chance.random() < REPEATED_FILES]
            self._chance.shuffle(files)
            return files
        markets = chosen()
        write_reference(self._project / "reference", years=(2024, 2027), markets=markets)
        day = Day(
            self._asked.seed,
            latest_session(datetime.now(UTC).date(), markets[0].venues[0].code),
            self._asked.trades,
            duplicates=0.02,
            broken=0.01,
            late=0.03,
            corrections=0.02,
        )
        sent = list(simulate(day, make_instruments(day.instruments, markets)))
        delayed = [one for one in sent if self._chance.random() < DELAYED_LINES]
        apart = {id(one) for one in delayed}
        self._chance.shuffle(delayed)
        order = [one for one in sent if id(one) not in apart] + delayed
        groups = []
        while order:
            size = self._chance.randint(1, 2_000)
            group, order = order[:size], order[size:]
            self._chance.shuffle(group)
            groups.append(group)
        groups += [g for g in groups if self._chance.random() < REPEATED_FILES]
        self._chance.shuffle(groups)
        flat = [one for group in groups for one in group]
        self._done.records = write_truth(flat, self._asked.folder / "truth.jsonl")
        return [b"\n".join(map(line, group)) + b"\n" for group in groups]

    # What happens to it ---------------------------------------------------------------------

    def _kill_again_and_again(self, files: list[bytes], drop: Path, home: Path) -> None:
        points = list(POINTS)
        if self._asked.kills < 2 * len(points):
            points = self._chance.sample(points, (self._asked.kills + 1) // 2)
        kills = points + ["a random moment"] * (self._asked.kills - len(points))
        self._chance.shuffle(kills)
        names = [f"{n:06}{self._suffix()}" for n in range(len(files))]
        waiting = list(zip(names, files, strict=True))
        for number, at in enumerate(kills, start=1):
            share = -(-len(waiting) // (len(kills) - number + 2))
            now, waiting = waiting[:share], waiting[share:]
            kill = self._cycle(at, now, drop, home)
            self._done.kills.append(kill)
            self._say(f"kill {number} of {len(kills)}: {json.dumps(kill)}")
        for name, content in waiting:
            _deliver(drop, name, content)

    def _suffix(self) -> str:
        if self._asked.given is None:
            return ".jsonl"
        return next(path.suffix for path in sorted(self._asked.given.iterdir()))

    def _cycle(
        self, at: str, files: Sequence[tuple[str, bytes]], drop: Path, home: Path
    ) -> dict[str, Any]:
        """Start the pipeline, deliver, and let it die."""
        environment = dict(SMALL)
        if at in POINTS:
            environment["TAPELINE_FAILPOINTS"] = f"{at}={self._chance.randint(1, 3)}"
        half = len(files) // 2
        for name, content in files[:half]:
            _deliver(drop, name, content)
        child = self._start(environment)
        victim = "itself"
        try:
            self._wait(lambda: child.poll() is not None or _runs(home, child.pid), START_SECONDS)
            for name, content in files[half:]:
                _deliver(drop, name, content)
            if at in POINTS:
                # With nothing left to do the point may not be reached: then it dies like others.
                self._wait(lambda: child.poll() is not None, 20.0)
            else:
                time.sleep(self._chance.uniform(0.0, 3.0))
            if child.poll() is None:
                victim = self._chance.choice(["both", "both", "python", "jvm"])
                self._kill(child, victim)
        finally:
            _end(child)
        return {"at": at, "killed": victim, "batch": _batch(home)}

    def _kill(self, child: subprocess.Popen[bytes], victim: str) -> None:
        if victim == "jvm":
            for pid in _java_below(child.pid):
                os.kill(pid, signal.SIGKILL)
            self._wait(lambda: child.poll() is not None, 60.0)
        elif victim == "python":
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        else:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        log = (self._asked.folder / "drill.log").open("ab")
        with log:
            return subprocess.Popen(
                [*COMMAND, "run", self._target(), *self._places(self._project)],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _once(self, project: Path, target: str | None = None) -> None:
        """Work off all that is there, undisturbed."""
        done = subprocess.run(
            [*COMMAND, "run", target or self._target(), "--once", *self._places(project)],
            env={**os.environ, "TAPELINE_INTAKE_SETTLE_SECONDS": "0.2"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise OperationError(f"the last run failed: {done.stderr[-2000:]}")

    @staticmethod
    def _places(project: Path) -> list[str]:
        return ["--project", str(project), "--root", str(project / "books")]

    @staticmethod
    def _wait(condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)

    # What comes out -------------------------------------------------------------------------

    def _compare(self, books: Books) -> list[str]:
        if self._asked.given is None:
            return trade_differences(
                books, self._asked.folder / "truth.jsonl", self._project / "reference"
            )
        return self._static_differences(books)

    def _static_differences(self, books: Books) -> list[str]:
        """The drilled summaries against one pass over the same files, in order, each once."""
        static = self._asked.folder / "static"
        shutil.copytree(self._project, static, ignore=shutil.ignore_patterns("books"))
        target = str(static / Path(self._asked.target).name)
        settings = Settings(project=static, root=static / "books")
        plan = resolve(load_pipeline(target, settings))
        (source,) = plan.pipeline.sources.values()
        drop = static / source.connector.path
        shutil.rmtree(drop, ignore_errors=True)
        drop.mkdir(parents=True)
        given = self._asked.given
        for path in sorted(given.iterdir()) if given else []:
            _deliver(drop, path.name, path.read_bytes())
        self._once(static, target)
        expected = Books(plan, settings.home(plan.name))
        found = []
        for summary in plan.summaries:
            ours, theirs = (
                {tuple(str(r[k]) for k in summary.key): _measures(r) for r in rows.to_pylist()}
                for rows in (books.read(summary.name), expected.read(summary.name))
            )
            found += [
                f"{summary.name} {key}: {ours.get(key)} is not {theirs.get(key)}"
                for key in sorted({*ours, *theirs})
                if ours.get(key) != theirs.get(key)
            ]
        return found


def trade_differences(books: Books, truth: Path, reference: Path) -> list[str]:
    """Where the brokerage's books differ from the oracle's."""
    expected = oracle.expect(oracle.read_truth(truth), oracle.Reference.read(reference))
    found: list[str] = []
    totals = books.totals()
    for table, verdicts in (
        ("trades", expected.trades),
        ("enriched_trades", expected.enriched_trades),
    ):
        said = totals.get(table, {}).get("verdicts", {})
        if said != dict(verdicts):
            found.append(f"{table}: {said} is not {dict(verdicts)}")
    names = ("total_buy", "total_sell", "fees", "trades")
    ours = {
        (r["window_start"], r["terminal"], r["currency"]): tuple(r[n] for n in names)
        for r in books.read("trade_summary").to_pylist()
    }
    theirs = {k: tuple(getattr(w, n) for n in names) for k, w in expected.windows.items()}
    found += [
        f"trade_summary {key}: {ours.get(key)} is not {theirs.get(key)}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]
    due = {(r["settlement_id"], r["currency"]): r["due"] for r in books.read("due").to_pylist()}
    found += [
        f"due {key}: {due.get(key)} is not {expected.due.get(key)}"
        for key in sorted({*due, *expected.due})
        if due.get(key) != expected.due.get(key)
    ]
    return found + client_differences(books, expected)


def client_differences(books: Books, expected: oracle.Expected) -> list[str]:
    """Where the clients' parts differ from the oracle's, if the books hold them."""
    if "client_due" not in books.plan.pipeline.summaries:
        return []
    names = ("bought", "sold", "fees", "trades")
    parts: dict[Any, Any] = {
        (r["settlement_id"], r["client"], r["currency"]): tuple(r[n] for n in names)
        for r in books.read("client_due").to_pylist()
    }
    totals: dict[Any, Any] = {
        (r["settlement_id"], r["currency"]): (r["payable"], r["receivable"], r["clients"])
        for r in books.read("client_totals").to_pylist()
    }
    known = {key: tuple(getattr(p, n) for n in names) for key, p in expected.clients.items()}
    return [
        f"{name} {key}: {ours.get(key)} is not {theirs.get(key)}"
        for name, ours, theirs in (
            ("client_due", parts, known),
            ("client_totals", totals, expected.client_totals),
        )
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]


COMMAND = [sys.executable, "-m", "tapeline"]


def _measures(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items() if name != "_status"}


def _deliver(drop: Path, name: str, content: bytes) -> None:
    hidden = drop / f".{name}"
    hidden.write_bytes(content)
    hidden.rename(drop / name)


def _runs(home: Path, pid: int) -> bool:
    status = read_status(home / "status.json")
    return bool(status and status["pid"] == pid)


def _batch(home: Path) -> int | None:
    status = read_status(home / "status.json")
    return status["batch"] if status else None


def _java_below(pid: int) -> list[int]:
    """The JVMs that a process has started."""
    found = []
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    for one in map(int, below):
        try:
            name = Path(f"/proc/{one}/comm").read_text().strip()
        except OSError:
            continue
        found += [one] if name == "java" else _java_below(one)
    return found


def _end(child: subprocess.Popen[bytes]) -> None:
    """Nothing of a cycle lives on: neither Python nor its JVM."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
