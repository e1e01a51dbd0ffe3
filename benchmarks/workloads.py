"""Workloads of live streams and the questions around them: rates, a burst, late trades, set-up."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median

from benchmarks import latency, serving
from benchmarks.generate import REPOSITORY, make
from benchmarks.scenarios import Facts, arm, fresh_root, ours, ratio, tapeline_latency

RATES = (200, 1_000, 2_000, 5_000, 10_000, 20_000)
ORDINARY, BURST = 200, 4_000
SETTLED = 2.0  # a file after a burst is in time when it took so many times as long as before it
SOON_SECONDS = 2.0
CLIENTS = (1, 50, 500)


def batch_sizes(scale: float, rounds: int) -> Facts:
    """What does a micro-batch of none and of 20,000 new trades cost against one bare append?"""
    made = make("large_batches", scale)
    words = ["--warm-up", "6", "--batches", "12"]
    bare: list[float] = []
    own: list[Facts] = []
    for _ in range(rounds):
        peer = arm("benchmarks.bare_append", "--drop", str(made.drop), *words)
        bare.append(peer["append_ms_p50"])
        own.append(ours("batches", made, "--lines", "20000", *words))
    tapeline = [one["flow_ms_p50"] for one in own]
    return {
        "unit": "ms, median of a batch of 20,000",
        "tapeline": tapeline,
        "bare_append": bare,
        "ratio": ratio(tapeline, bare),
        "spark_jobs_per_batch": own[-1]["spark_jobs"],
        "empty_ms": median(one["empty_ms_p50"] for one in own),
        "empty_spark_jobs": max(one["empty_spark_jobs"] for one in own),
        # Writing through Spark's default checkpoint manager forks; ours must not.
        "forked_cpu_seconds": max(one["forked_cpu_seconds"] for one in own),
    }


def rates(scale: float, rounds: int) -> Facts:
    """How soon does a trade change the number at 200 to 20,000 trades a second in files of 200?"""
    found: dict[int, Facts] = {}
    for rate in RATES:
        made = make("stream", rate * max(20, round(60 * scale)) / 60_000)
        warm_up = len(made.files) // 3
        due = latency.steady(len(made.files), rate)
        found[rate] = tapeline_latency(made, warm_up=warm_up, due_seconds=due)
        if not _kept_up(found[rate]):
            break
    kept = [rate for rate, facts in found.items() if _kept_up(facts)]
    return {
        "unit": "seconds, file renamed -> number read",
        "p50_seconds": {rate: facts["p50_seconds"] for rate, facts in found.items()},
        "p99_seconds": {rate: facts["p99_seconds"] for rate, facts in found.items()},
        "p50_at_1000": found[1_000]["p50_seconds"],
        "p99_at_1000": found[1_000]["p99_seconds"],
        "highest_rate": max(kept, default=0),
        "runs": list(found.values()),
    }


def _kept_up(facts: Facts) -> bool:
    """In time, and no later at the end than at the beginning."""
    growing = facts["second_half_p50_seconds"] > 1.5 * facts["first_half_p50_seconds"]
    return not facts["never_seen"] and facts["p99_seconds"] < SOON_SECONDS and not growing


def burst(scale: float, rounds: int) -> Facts:
    """How long does it take to be in time again after a minute of twenty times the trades?"""
    before, during, after = 40.0, 60.0 * scale, 60.0
    spans = [(before, ORDINARY), (during, BURST), (after, ORDINARY)]
    counts = [round(seconds * rate / latency.LINES_PER_FILE) for seconds, rate in spans]
    gaps = [latency.LINES_PER_FILE / rate for _, rate in spans for _ in range(counts.pop(0))]
    made = make("stream", sum(seconds * rate for seconds, rate in spans) / 60_000)
    due = _stretched([0.0, *accumulate(gaps)], len(made.files))
    sent: list[latency.Sent] = []
    facts = tapeline_latency(made, warm_up=10, due_seconds=due, found=sent)
    begin = sent[0].due
    ended = before + during
    done = [one for one in sent if one.renamed]
    waits = [(one.due - begin, (one.seen or one.renamed) - one.renamed) for one in done]
    ordinary = median(wait for at, wait in waits if 15.0 < at < before)
    again = [at + wait for at, wait in waits if at > ended and wait <= SETTLED * ordinary]
    return {
        "unit": "seconds from the end of the burst until a file took twice the usual time or less",
        "ordinary_seconds": round(ordinary, 3),
        "longest_seconds": round(max(wait for _, wait in waits), 3),
        "drain_seconds": round(again[0] - ended, 2) if again else None,
        "peak_rss_mb": facts["peak_rss_mb"],
        "runs": [facts],
    }


def _stretched(due: list[float], files: int) -> list[float]:
    """As many moments as there are files: repeats make a few more than were planned."""
    last = due[-1] - due[-2]
    return [*due[:files], *(due[-1] + last * more for more in range(1, files - len(due) + 1))]


def late_ages(scale: float, rounds: int) -> Facts:
    """Does the age of a late trade cost? One trade an hour, a day, 30 and 365 days old a batch."""
    made = make("stream", 2.0, clean=True)
    words = ["--warm-up", "50", "--batches", str(int(300 * scale))]
    runs = [ours("ages", made, *words) for _ in range(rounds)]
    for one in runs:
        if one["sent"] != one["trades"]:
            raise RuntimeError(f"{one['sent']} trades were sent, {one['trades']} are counted")
    ages = runs[0]["flow_ms_p50"]
    by_age = {age: [one["flow_ms_p50"][age] for one in runs] for age in ages}
    return {
        "unit": "ms, median of a batch of 200",
        "flow_ms_p50": by_age,
        # A late trade makes a second cause in its batch, whatever its age.
        "late_against_none": ratio(by_age["1h"], by_age["none"]),
        "ratio_30d": ratio(by_age["30d"], by_age["1h"]),
        "ratio_365d": ratio(by_age["365d"], by_age["1h"]),
        "runs": runs,
    }


def questions(scale: float, rounds: int) -> Facts:
    """How fast are questions on 1, 10 and 100 days of 20,000 trades?"""
    made = make("hundred_days", scale, corrections=0.005)
    names = ("report_ms", "as_reported_ms", "why_ms", "audit_full_ms", "windows")
    runs = {days: ours("history", made, "--days", str(days), "--warm-up", "1", "--batches", "1")
            for days in (1, 10, 100)}  # fmt: skip
    return {
        "unit": "milliseconds in a process that is warm; the audit reads everything, once",
        **{name: {days: one[name] for days, one in runs.items()} for name in names},
        **{f"{name.removesuffix('_ms')}_100_days_ms": runs[100][name] for name in names[:4]},
        "runs": list(runs.values()),
    }


def chart_clients(scale: float, rounds: int) -> Facts:
    """What do 1, 50 and 500 open charts cost the server?"""
    made = make("stream", 0.5)
    runs = []
    for clients in CLIENTS:
        with fresh_root("charts") as root:
            runs.append(serving.many_clients(made, root, clients=clients, seconds=30 * scale))
    return {
        "unit": "milliseconds from the commit to the client's event, median",
        "commit_to_event_ms": {one["clients"]: one["commit_to_event_ms_p50"] for one in runs},
        "event_ms_of_500": runs[-1]["commit_to_event_ms_p50"],
        "missed": sum(one["missed"] for one in runs),
        "cores_for_500": runs[-1]["server_cores"],
        "rss_mb_for_500": runs[-1]["server_rss_mb"],
        "runs": runs,
    }


def set_up(scale: float, rounds: int) -> Facts:
    """How long is the way from a fresh clone to a first number, and what does a start cost?"""
    python = sys.executable
    tapeline = str(Path(python).with_name("tapeline"))
    start = "from tapeline.testing import spark; spark().range(1).count()"
    words: dict[str, Sequence[str]] = {
        "import_seconds": [python, "-c", "import tapeline"],
        "plan_seconds": [tapeline, "plan"],
        "session_seconds": [python, "-c", start],
        "import_pyspark_seconds": [python, "-c", "import pyspark.sql"],
    }
    found = {
        name: median(_seconds(lambda line=line: _ran(line)) for _ in range(3 * rounds))
        for name, line in words.items()
    }
    with fresh_root("clone") as root:
        clone = root / "tapeline"
        _ran(["git", "clone", "--quiet", str(REPOSITORY), str(clone)])
        found["set_up_seconds"] = _seconds(lambda: _ran(["make", "setup"], clone))
        found["first_number_seconds"] = _seconds(lambda: _first_number(clone, root))
    return {
        "unit": "seconds; the package cache is warm",
        **{name: round(seconds, 2) for name, seconds in found.items()},
    }


def _first_number(clone: Path, root: Path) -> None:
    """A new project, run once, and its report: the first number a newcomer sees."""
    tapeline = str(clone / ".venv" / "bin" / "tapeline")
    _ran([tapeline, "new", "first"], root)
    project = root / "first"
    _ran([tapeline, "run", "pipeline.py", "--once"], project)
    shutil.rmtree(project)


def _ran(words: Sequence[str], where: Path | None = None) -> None:
    subprocess.run(words, cwd=where or REPOSITORY, check=True, capture_output=True)


def _seconds(work: Callable[[], None]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started
