"""Tapeline's own arms: the trades pipeline on files, live, once, or batch by batch.

python -m benchmarks.ours once --root DIR --drop DIR --reference DIR
python -m benchmarks.ours live --root DIR --reference DIR          # drop into DIR/landing
python -m benchmarks.ours batches --root DIR --drop DIR --reference DIR --batches 60
python -m benchmarks.ours history --root DIR --drop DIR --reference DIR --days 1
python -m benchmarks.ours grow --root DIR --drop DIR --reference DIR
python -m benchmarks.ours ages --root DIR --drop DIR --reference DIR --batches 300
python -m benchmarks.ours soak --root DIR --drop DIR --reference DIR --batches 5000
python -m benchmarks.ours reach --root DIR --reference DIR --batches 8  # after a kill
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import sums
from benchmarks.clock import seconds_since_start
from benchmarks.latency import percentile
from tapeline.books import Books, row_hash
from tapeline.books.audit import audit
from tapeline.books.commits import read_commits
from tapeline.books.revisions import why
from tapeline.declare.pipeline import Table
from tapeline.operate.runner import Runner
from tapeline.plan import Plan, load_pipeline, resolve
from tapeline.settings import Settings, load_settings
from tapeline.store.housekeeping import tidy
from tapeline.testing import Trial
from tapeline.trades.reference import write_reference

LINES_PER_BATCH = 200


def project(asked: argparse.Namespace) -> tuple[Plan, Settings]:
    """A project of its own under the root, with the input's reference data."""
    asked.root.mkdir(parents=True, exist_ok=True)
    if not (asked.root / "reference").exists():
        shutil.copytree(asked.reference, asked.root / "reference")
        # An input may be older than the newest reference file: the missing ones are made.
        write_reference(asked.root / "reference", years=(2024, 2026))
    settings = replace(load_settings(asked.root.absolute()), root=asked.root / "books")
    pipeline = load_pipeline("tapeline.trades", settings)
    if asked.without == "register":
        pipeline.tables.update({n: forgetful(table) for n, table in pipeline.tables.items()})
    elif asked.without == "proofs":
        prove_nothing()
    return resolve(pipeline), settings


def forgetful(table: Table) -> Table:
    """The table without its identity: it remembers no key, so a repeat would count twice."""
    return replace(table, key=(), sequence_by=None, apply_as_deletes=None)


def prove_nothing() -> None:
    """Rows are neither ordered nor hashed any more: a changed value would go unseen."""
    row_hash._ordered = lambda rows: rows
    row_hash._parts = lambda column: iter(())


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "arm": "tapeline", **facts}), flush=True)


def summary_rows(books: Books) -> list[sums.Row]:
    rows = books.read("trade_summary").to_pylist()
    return [sums.row(one[name] for name in sums.COLUMNS) for one in rows]


class SummaryTotal:
    """Counts the trades in the summary as any reader does, without Spark."""

    def __init__(self, root: Path) -> None:
        settings = Settings(project=root, root=root / "books")
        plan = resolve(load_pipeline("tapeline.trades", settings))
        self._books = Books(plan, settings.home(plan.name))

    def __call__(self) -> int:
        rows = self._books.read("trade_summary")
        return sum(rows["trades"].to_pylist()) if rows.num_columns else 0

    def checksum(self) -> str:
        return sums.checksum(summary_rows(self._books))


def live(asked: argparse.Namespace) -> None:
    plan, settings = project(asked)
    with Runner(plan, settings) as runner:
        signal.signal(signal.SIGTERM, lambda *_: runner.stop())
        say("ready", seconds_from_start=round(seconds_since_start(), 3))
        runner.run()
        if runner.failure is not None:
            raise SystemExit(str(runner.failure))


def once(asked: argparse.Namespace) -> None:
    """Work off what waits, and read the final numbers."""
    plan, settings = project(asked)
    link_files(sorted(asked.drop.iterdir()), asked.root / "landing")
    with Runner(plan, settings) as runner:
        ready = seconds_since_start()
        say("ready", seconds_from_start=round(ready, 3))
        published = runner.run_once()
        rows = summary_rows(Books(plan, settings.home(plan.name)))
        done = seconds_since_start()
    say(
        "done",
        trades=sums.trades(rows),
        checksum=sums.checksum(rows),
        batches=len(published),
        most_records=max((one.records for one in published), default=0),
        batch_seconds=[round(one.seconds, 2) for one in published],
        seconds_from_start=round(done, 3),
        seconds_from_ready=round(done - ready, 3),
    )


def reach(asked: argparse.Namespace) -> None:
    """Started again on books that are there: how soon a batch is published, none lost."""
    plan, settings = project(asked)
    with Runner(plan, settings) as runner:
        ready = seconds_since_start()
        found = runner.flow.published_batch
        thread = threading.Thread(target=runner.run)
        thread.start()
        while runner.flow.published_batch < asked.batches and thread.is_alive():
            time.sleep(0.002)
        reached = seconds_since_start()
        runner.stop()
        thread.join()
    say("done", ready=round(ready, 3), reached=round(reached, 3), found_batch=found)


def link_files(files: list[Path], target: Path) -> None:
    """Put files into a drop folder, renamed into place as senders should."""
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        hidden = target / f".{file.name}"
        shutil.copyfile(file, hidden)
        hidden.rename(target / file.name)


def groups(drop: Path, size: int) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    for file in sorted(drop.iterdir()):
        lines += file.read_bytes().splitlines()
        while len(lines) >= size:
            yield lines[:size]
            lines = lines[size:]


def batches(asked: argparse.Namespace) -> None:
    """The flow's micro-batch alone, so many new trades each, and what it costs to find none."""
    plan, _ = project(asked)
    trial = Trial(plan.pipeline, asked.root)
    tracker = trial.flow._session.sparkContext.statusTracker()
    flow_ms: list[float] = []
    jobs = 0
    forked = forked_seconds()
    for lines in groups(asked.drop, asked.lines):
        trial.put("raw_trades", lines)
        jobs = max(tracker.getJobIdsForGroup(None), default=0)
        started = time.perf_counter()
        trial.flow.advance()
        flow_ms.append((time.perf_counter() - started) * 1000)
        jobs = max(tracker.getJobIdsForGroup(None)) - jobs
        if len(flow_ms) == asked.warm_up + asked.batches:
            break
    measured = flow_ms[asked.warm_up :]
    forked = forked_seconds() - forked
    last = max(tracker.getJobIdsForGroup(None))
    empty_ms = [timed(trial.flow.advance) for _ in range(50)]
    say(
        "done",
        empty_ms_p50=round(median(empty_ms), 3),
        empty_spark_jobs=max(tracker.getJobIdsForGroup(None)) - last,
        forked_cpu_seconds=round(forked, 3),
        batches=len(measured),
        flow_ms_p50=round(median(measured), 1),
        flow_ms_p95=round(percentile(measured, 95), 1),
        spark_jobs=jobs,
        flow_ms=[round(one, 1) for one in flow_ms],
    )


def forked_seconds() -> float:
    """Processor seconds of processes that this one and its Java started and that have ended."""
    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(t.children_user + t.children_system for t in (one.cpu_times() for one in tree))


# The ages of the one late trade in a batch; None: every trade is of now.
AGES = {"none": None, "1h": 1 / 24, "1d": 1.0, "30d": 30.0, "365d": 365.0}


def ages(asked: argparse.Namespace) -> None:
    """Batches of 200 whose last trade is of another time, the ages by turns."""
    write_reference(asked.root / "reference", years=(2024, 2026))  # the oldest settle in 2024
    plan, _ = project(asked)
    trial = Trial(plan.pipeline, asked.root)
    flow_ms: dict[str, list[float]] = {name: [] for name in AGES}
    sent = 0
    turns = cycle(AGES)
    for number, lines in enumerate(groups(asked.drop, LINES_PER_BATCH)):
        age = next(turns)
        trial.put("raw_trades", aged(lines, AGES[age]))
        sent += len(lines)
        took = timed(trial.flow.advance)
        if number >= asked.warm_up:
            flow_ms[age].append(took)
        if number + 1 == asked.warm_up + asked.batches:
            break
    rows = summary_rows(Books(plan, trial.settings.home(plan.name)))
    say(
        "done",
        sent=sent,
        trades=sums.trades(rows),
        windows=len(rows),
        flow_ms_p50={age: round(median(times), 1) for age, times in flow_ms.items()},
    )


def aged(lines: list[bytes], days: float | None) -> list[bytes]:
    """The lines with the last one so many days older."""
    if days is None:
        return lines
    record = json.loads(lines[-1])
    moment = datetime.fromisoformat(record["traded_at"]) - timedelta(days=days)
    return [*lines[:-1], json.dumps({**record, "traded_at": moment.isoformat()}).encode()]


def history(asked: argparse.Namespace) -> None:
    """Live batches on top of so many days of trades; the last day's files make the batches."""
    plan, settings = project(asked)
    days = by_day(asked.drop)
    # The live day comes last; before it, so many days of history.
    chosen = [file for files in days[-1 - asked.days : -1] for file in files]
    link_files(chosen, asked.root / "landing")
    with Runner(plan, settings) as runner:
        runner.run_once()
        loaded = runner.flow.published_batch
    questions = asked_of(Books(plan, settings.home(plan.name)), audits=True)
    live_folder = asked.root / "live"
    link_files(days[-1], live_folder)
    trial = Trial(plan.pipeline, asked.root)
    found = live_batches(trial, groups(live_folder, LINES_PER_BATCH), asked)
    keys = len(trial.flow.memories["trades"].identity or ())
    say("done", days=asked.days, loaded_batches=loaded, keys=keys, **found, **questions)


def asked_of(books: Books, audits: bool = False) -> dict[str, Any]:
    """Milliseconds of what people ask, each the median of five; an audit is asked once."""
    rows = books.read("trade_summary")
    commits = read_commits(books.layout.commits)
    middle = commits[len(commits) // 2].at
    middle_row = rows.slice(rows.num_rows // 2, 1).to_pylist()[0]
    key = [str(middle_row[name]) for name in ("window_start", "terminal", "currency")]
    asked: dict[str, Callable[[], object]] = {
        "report": lambda: books.read("trade_summary"),
        "as_reported": lambda: books.read("trade_summary", middle),
        "why": lambda: why(books, "trade_summary", key, 20),
    }
    found = {f"{n}_ms": round(median(timed(f) for _ in range(5)), 1) for n, f in asked.items()}
    if audits:
        found["audit_full_ms"] = round(timed(lambda: audit(books, full=True)), 1)
    return {
        "windows": rows.num_rows,
        "revisions": len(why(books, "trade_summary", key, 0)),
        **found,
    }


def grow(asked: argparse.Namespace) -> None:
    """A backlog in parts; behind 1, 10, 100 days and all, live batches of the last day."""
    plan, settings = project(asked)
    days = by_day(asked.drop)
    live_folder = asked.root / "live"
    link_files(days[-1], live_folder)
    lines = groups(live_folder, LINES_PER_BATCH)
    steps: list[dict[str, Any]] = []
    for first, last in pairwise((0, 1, 10, 100, len(days) - 1)):
        steps.append(worked_off([f for files in days[first:last] for f in files], plan, settings))
        trial = Trial(plan.pipeline, asked.root)
        steps[-1] |= {"days": last, **live_batches(trial, lines, asked)}
        trial.close()
        steps[-1] |= asked_of(Books(plan, settings.home(plan.name)))
        say("step", **steps[-1])
    worked_off(days[-1], plan, settings)  # the whole last day: what came already is a repeat
    rows = summary_rows(Books(plan, settings.home(plan.name)))
    say(
        "done",
        steps=steps,
        heap=settings.spark.driver_memory,
        checksum=sums.checksum(rows),
    )


def worked_off(files: list[Path], plan: Plan, settings: Settings) -> dict[str, Any]:
    """Files that wait in the drop folder, processed: bytes, records and their rate."""
    link_files(files, settings.project / "landing")
    with Runner(plan, settings) as runner:
        started = time.perf_counter()
        published = runner.run_once()
        seconds = time.perf_counter() - started
    records = sum(one.records for one in published)
    return {
        "bytes": sum(file.stat().st_size for file in files),
        "records": records,
        "batches": len(published),
        "seconds": round(seconds, 1),
        "records_per_second": round(records / seconds),
    }


def live_batches(
    trial: Trial, lines: Iterator[list[bytes]], asked: argparse.Namespace
) -> dict[str, Any]:
    """So many batches of 200, after a few that warm up: their times and what they read."""
    flow_ms: list[float] = []
    process = psutil.Process()
    read_before = 0
    for some in lines:
        trial.put("raw_trades", some)
        if len(flow_ms) == asked.warm_up:
            read_before = process.io_counters().read_chars
        started = time.perf_counter()
        trial.flow.advance()
        flow_ms.append((time.perf_counter() - started) * 1000)
        if len(flow_ms) == asked.warm_up + asked.batches:
            break
    read = process.io_counters().read_chars - read_before
    measured = flow_ms[asked.warm_up :]
    return {
        "live_batches": len(measured),
        "flow_ms_p50": round(median(measured), 1),
        "flow_ms_p95": round(percentile(measured, 95), 1),
        "read_bytes_per_batch": read // max(1, len(measured)),
    }


def by_day(drop: Path) -> list[list[Path]]:
    """The files of every simulated day, in order."""
    days: dict[str, list[Path]] = {}
    for file in sorted(drop.iterdir()):
        days.setdefault(day_of(file), []).append(file)
    return [days[day] for day in sorted(days)]


def day_of(file: Path) -> str:
    """The simulated day in a file's name."""
    return next(part for part in file.stem.split("-") if part[0] == "T" and part[1:].isdigit())


def soak(asked: argparse.Namespace) -> None:
    """Many small batches with housekeeping: what stays bounded is shown by hundreds."""
    plan, settings = project(asked)
    trial = Trial(plan.pipeline, asked.root)
    every = settings.housekeeping.compact_every_batches
    flow_ms: list[float] = []
    tidy_ms: list[float] = []
    hundreds: list[dict[str, Any]] = []
    for lines in groups(asked.drop, asked.lines):
        trial.put("raw_trades", lines)
        started = time.perf_counter()
        trial.flow.advance()
        flow_ms.append((time.perf_counter() - started) * 1000)
        if len(flow_ms) % every == 0:
            tidy_ms.append(timed(lambda: tidy_all(trial, settings)))
        if len(flow_ms) % 100 == 0:
            hundreds.append(facts_of(trial, flow_ms[-100:], tidy_ms[-100 // every :]))
            say("hundred", **hundreds[-1])
        if len(flow_ms) == asked.batches:
            break
    say("done", batches=len(flow_ms), hundreds=hundreds)


def tidy_all(trial: Trial, settings: Settings) -> None:
    for book in (*trial.flow.ledger.books.values(), trial.flow.ledger.commits.book):
        tidy(book, settings.housekeeping)
    for tape in trial.tapes.values():
        tape.tidy(settings.housekeeping, flown=True)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def facts_of(trial: Trial, flow_ms: list[float], tidy_ms: list[float]) -> dict[str, Any]:
    home = trial.flow.layout.home
    logs = sum(len(list(log.iterdir())) for log in home.rglob("_delta_log"))
    live_files = sum(len(book.table.file_uris()) for book in trial.flow.ledger.books.values())
    return {
        "batch": trial.flow.published_batch,
        "flow_ms_p50": round(median(flow_ms), 1),
        "flow_ms_p95": round(percentile(flow_ms, 95), 1),
        "tidy_ms_p50": round(median(tidy_ms), 1),
        "tidy_ms_max": round(max(tidy_ms), 1),  # most turns join small files, some up to the target
        "live_files": live_files,
        "log_files": logs,
        "rss_mb": psutil.Process(os.getpid()).memory_info().rss >> 20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(WORK))
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--drop", type=Path)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--lines", type=int, default=LINES_PER_BATCH)
    parser.add_argument("--without", choices=["register", "proofs"], help="what it costs")
    asked = parser.parse_args()
    WORK[asked.what](asked)


WORK = {
    "once": once,
    "live": live,
    "batches": batches,
    "history": history,
    "grow": grow,
    "ages": ages,
    "soak": soak,
    "reach": reach,
}


if __name__ == "__main__":
    main()
