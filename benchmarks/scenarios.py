"""The questions, each answered by arms that run side by side in one run.

Every arm is a process of its own on a fresh root; arms are interleaved, rounds are repeated, and
an arm whose sums differ from the truth has no number.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import latency, serving
from benchmarks.generate import Input, bench_folder, make
from benchmarks.measure import run, running, start
from benchmarks.ours import SummaryTotal
from tapeline.books.commits import read_commits

LIMIT_SECONDS = 900.0
# Killed when a point is reached so often: Java is warm by then, and the tape ahead of the flow.
KILLS = {"computed": 12, "decided": 12, "tape_decided": 50}
Facts = dict[str, Any]


@contextmanager
def fresh_root(name: str) -> Iterator[Path]:
    """A folder that no earlier run has touched, removed at the end."""
    root = bench_folder() / "runs" / name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def arm(
    name: str,
    *arguments: str,
    limit_seconds: float = LIMIT_SECONDS,
    python: Path | None = None,
) -> Facts:
    """One arm to its end; what it said last, with its processor seconds and memory."""
    log = bench_folder() / "logs" / f"{name}.log"
    result = run([name, *arguments], log, limit_seconds, python=python)
    if result.exit_code != 0 or result.timed_out:
        raise RuntimeError(f"{name} failed ({result.exit_code}): {result.stderr_tail[-2000:]}")
    usage = {
        "cpu_seconds": round(result.usage.cpu_seconds, 1),
        "peak_rss_mb": result.usage.peak_rss_bytes >> 20,
    }
    return {**result.last, **usage}


def ours(what: str, made: Input, *more: str, limit_seconds: float = LIMIT_SECONDS) -> Facts:
    with fresh_root(f"ours-{what}") as root:
        places = ["--root", str(root), "--drop", str(made.drop), "--reference", str(made.reference)]
        return arm("benchmarks.ours", what, *places, *more, limit_seconds=limit_seconds)


def right(facts: Facts, made: Input) -> Facts:
    """No number without the right answer."""
    if facts["checksum"] != made.checksum:
        raise RuntimeError(f"{facts['arm']} gave other sums than the truth: it has no number")
    return facts


def micro_batch(scale: float, rounds: int) -> Facts:
    """What does the flow's micro-batch over 200 new trades cost against one bare Delta append?"""
    made = make("stream", max(0.5, scale))
    found: dict[str, list[float]] = {"tapeline": [], "bare_append": []}
    jobs = None
    for _ in range(rounds):
        bare = arm(
            "benchmarks.bare_append", "--drop", str(made.drop), "--warm-up", "40", "--batches", "60"
        )
        found["bare_append"].append(bare["append_ms_p50"])
        own = ours("batches", made, "--warm-up", "40", "--batches", "60")
        found["tapeline"].append(own["flow_ms_p50"])
        jobs = own["spark_jobs"]
    return {
        "unit": "ms, median of a batch",
        **found,
        "ratio": ratio(found["tapeline"], found["bare_append"]),
        "spark_jobs_per_batch": jobs,
    }


def live_latency(scale: float, rounds: int) -> Facts:
    """How soon does a trade change the number? 400 trades a second in files of 200."""
    made = make("stream", scale)
    found: dict[str, list[Facts]] = {"tapeline": [], "by_hand_tuned": [], "by_hand_default": []}
    for _ in range(rounds):
        found["tapeline"].append(tapeline_latency(made))
        found["by_hand_tuned"].append(latency.by_hand(made, tuned=True))
        found["by_hand_default"].append(latency.by_hand(made, tuned=False))
    medians = {name: [one["p50_seconds"] for one in runs] for name, runs in found.items()}
    return {
        "unit": "seconds, file renamed -> number read, median",
        **medians,
        "times_lower_than_default": ratio(medians["by_hand_default"], medians["tapeline"]),
        "times_lower_than_tuned": ratio(medians["by_hand_tuned"], medians["tapeline"]),
        # An arm that was wrong at the end has no number: its latency is then a lower bound.
        "lower_bounds": [
            n for n, runs in found.items() if not all(r.get("right", 1) for r in runs)
        ],
        "runs": found,
    }


def tapeline_latency(
    made: Input,
    *,
    warm_up: int = 40,
    due_seconds: Sequence[float] = (),
    found: list[latency.Sent] | None = None,
) -> Facts:
    """Our own arm, live; `found` receives what became of every file."""
    with fresh_root("ours-live") as root:
        places = ["--root", str(root), "--reference", str(made.reference)]
        log = bench_folder() / "logs" / "ours-live.log"
        with running(["benchmarks.ours", "live", *places], log) as live:
            ready = live.wait_for("ready", 180)
            total = SummaryTotal(root)
            seen = latency.measure(made, root / "landing", total, warm_up, due_seconds)
            usage = live.watch.sample()
            live.stop()
        checksum = SummaryTotal(root).checksum()
    if found is not None:
        found += seen.files
    facts = {
        "arm": "tapeline",
        "checksum": checksum,
        **seen.summary(),
        "ready_seconds": ready["seconds_from_start"],
        "cpu_seconds": round(usage.cpu_seconds, 1),
        "peak_rss_mb": usage.peak_rss_bytes >> 20,
    }
    return right(facts, made)


def catch_up(scale: float, rounds: int) -> Facts:
    """How fast is a backlog processed? From the start of the process to the final numbers."""
    made = make("million", scale)
    places = ["--drop", str(made.drop), "--reference", str(made.reference)]
    found: dict[str, list[Facts]] = {
        "tapeline": [], "by_hand_tuned": [], "batch_sums": [], "duckdb_sums": []
    }  # fmt: skip
    for _ in range(rounds):
        found["tapeline"].append(right(ours("once", made), made))
        # The machine's unit: what one thread that only adds up needs.
        found["duckdb_sums"].append(right(arm("benchmarks.duckdb_sums", *places), made))
        found["batch_sums"].append(right(arm("benchmarks.batch_sums", *places, "--tuned"), made))
        with fresh_root("by-hand") as root:
            until = ["--until-trades", str(made.trades), "--watermark", "60 days", "--tuned"]
            by_hand = arm("benchmarks.by_hand", "--root", str(root), *places, *until)
            found["by_hand_tuned"].append(right(by_hand, made))
    whole = each(found, "seconds_from_start")
    ready = each(found, "seconds_from_ready")
    cpu = each(found, "cpu_seconds")
    return {
        "unit": f"seconds for {made.lines:,} records, from the start of the process",
        **whole,
        "from_ready": ready,
        "against_by_hand_tuned": ratio(whole["tapeline"], whole["by_hand_tuned"]),
        "against_batch_sums": ratio(whole["tapeline"], whole["batch_sums"]),
        "against_batch_sums_from_ready": ratio(ready["tapeline"], ready["batch_sums"]),
        "cpu_seconds": cpu,
        "trades_per_cpu_second": round(made.trades / median(cpu["tapeline"])),
        "against_duckdb_cpu": ratio(cpu["tapeline"], cpu["duckdb_sums"]),
        "peak_rss_mb": each(found, "peak_rss_mb"),
    }


def history(scale: float, rounds: int) -> Facts:
    """Does history cost? The same batches on top of 1 and of 20 days of trades."""
    return _against_history(make("history", scale), 20, rounds, ("40", "100"))


def hundred_days(scale: float, rounds: int) -> Facts:
    """Do look-ups cost more with history? Repeats and corrections on top of 1 and of 100 days."""
    made = make("hundred_days", scale, corrections=0.005)
    return _against_history(made, 100, rounds, ("30", "60"))


def backlog(scale: float, rounds: int) -> Facts:
    """Is a backlog of 5 GB processed with a heap of 2 GB, and do batches cost more after it?"""
    made = make("backlog", scale)
    words = ["--warm-up", "40", "--batches", "100"]
    with environment({"TAPELINE_INTAKE_KEEP": "delete"}):
        one = right(ours("grow", made, *words, limit_seconds=4 * LIMIT_SECONDS), made)
    steps = one["steps"]
    return {
        "unit": "ms, median of a batch of 200, behind 1, 10 and 100 days of 200,000 trades",
        "gigabytes": round(sum(step["bytes"] for step in steps) / 1e9, 2),
        "records_per_second": [step["records_per_second"] for step in steps],
        "flow_ms_p50": [step["flow_ms_p50"] for step in steps],
        "ratio_10": round(steps[1]["flow_ms_p50"] / steps[0]["flow_ms_p50"], 3),
        "ratio_100": round(steps[2]["flow_ms_p50"] / steps[0]["flow_ms_p50"], 3),
        "peak_rss_mb": one["peak_rss_mb"],
        "heap": one["heap"],
        "runs": [one],
    }


def _against_history(made: Input, days: int, rounds: int, sizes: tuple[str, str]) -> Facts:
    warm_up, batches = sizes
    found: dict[int, list[float]] = {1: [], days: []}
    more: list[Facts] = []
    for _ in range(rounds):
        for reach, times in found.items():
            words = ["--days", str(reach), "--warm-up", warm_up, "--batches", batches]
            more.append(ours("history", made, *words))
            times.append(more[-1]["flow_ms_p50"])
    return {
        "unit": "ms, median of a batch of 200",
        **{f"days_{reach}": times for reach, times in found.items()},
        "ratio": ratio(found[days], found[1]),
        "runs": more,
    }


def recovery(scale: float, rounds: int) -> Facts:
    """How soon after a kill is the flow where it was?"""
    made = make("million", scale)
    runs = [_killed_and_started_again(made, point) for _ in range(rounds) for point in KILLS]
    return {
        "unit": "batches until the flow is where it was; seconds beyond a start with nothing to do",
        "batches": max(one["batches"] for one in runs),
        "seconds": {one["point"]: one["seconds_beyond_start"] for one in runs},
        # Java is cold after a start: the fair measure is the first batch of any start.
        "against_first_batch": max(one["against_first_batch"] for one in runs),
        "runs": runs,
    }


# Batches of five thousand: many of them, and each about as long as the next.
EVEN_BATCHES = {
    "TAPELINE_FLOW_RECORDS_PER_BATCH": "5000",
    "TAPELINE_FLOW_BYTES_PER_TAPE_BATCH": "300000",
    "TAPELINE_INTAKE_RECORDS_PER_PIECE": "5000",
}


def _killed_and_started_again(made: Input, point: str) -> Facts:
    with fresh_root(f"ours-killed-{point}") as root, environment(EVEN_BATCHES):
        places = ["--root", str(root), "--reference", str(made.reference)]
        log = bench_folder() / "logs" / "ours-killed.log"
        arguments = ["benchmarks.ours", "once", *places, "--drop", str(made.drop)]
        doomed = start(arguments, log, TAPELINE_FAILPOINTS=f"{point}={KILLS[point]}")
        doomed.child.wait(LIMIT_SECONDS)
        if doomed.ended().exit_code != -signal.SIGKILL:
            raise RuntimeError(f"{point} was not reached often enough: nothing was killed")
        rows = read_commits(root / "books" / "trades" / "commits")
        took = [row.commit.milliseconds or 0 for row in rows if row.decides]
        ordinary = median(took[-5:]) / 1000
        at_work = len(took) + (point != "decided")
        again = arm("benchmarks.ours", "reach", *places, "--batches", str(at_work))
        plain = arm("benchmarks.ours", "reach", *places, "--batches", "0")
    beyond = again["reached"] - plain["ready"]
    first = took[0] / 1000
    return {
        "point": point,
        "batch": at_work,
        "batches": at_work - again["found_batch"],
        "seconds_beyond_start": round(beyond, 2),
        "ordinary_batch_seconds": ordinary,
        "first_batch_seconds": first,
        "against_first_batch": round(beyond / first, 2),
    }


@contextmanager
def environment(more: dict[str, str]) -> Iterator[None]:
    """Variables for all processes that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def soak(scale: float, rounds: int) -> Facts:
    """Do files, logs and the time per batch stay bounded over 5,000 small batches?"""
    made = make("stream", max(1.0, 5 * scale))
    batches = str(int(5_000 * max(scale, 0.1)))
    places = ["--batches", batches, "--lines", "50"]
    one = ours("soak", made, *places, limit_seconds=4 * LIMIT_SECONDS)
    hundreds = one["hundreds"]
    settled = hundreds[1:]  # the first hundred compiles
    return {
        "unit": "ms, median of a batch of 50",
        "hundreds": hundreds,
        "drift": round(settled[-1]["flow_ms_p50"] / settled[0]["flow_ms_p50"], 3),
    }


def small_files(scale: float, rounds: int) -> Facts:
    """Are a hundred thousand small files processed in bounded batches with bounded memory?"""
    made = make("stream", 1.0)
    files = int(100_000 * scale)
    with fresh_root("small-files") as root:
        texts = [file.read_bytes() for file in made.files]
        lines = [line for text in texts for line in text.splitlines(keepends=True)]
        drop = root / "many"
        drop.mkdir()
        for number in range(files):
            (drop / f"{number:06}.jsonl").write_bytes(lines[number % len(lines)])
        places = ["--root", str(root), "--drop", str(drop), "--reference", str(made.reference)]
        found = arm("benchmarks.ours", "once", *places)
    return {
        "unit": f"{files:,} files of one record each",
        "seconds_from_ready": found["seconds_from_ready"],
        "batches": found["batches"],
        "most_records_in_a_batch": found["most_records"],
        "peak_rss_mb": found["peak_rss_mb"],
        "trades": found["trades"],
    }


def serve_load(scale: float, rounds: int) -> Facts:
    """Does every one of 200 live clients see every commit, soon, and what does the server use?"""
    made = make("stream", 0.5)
    runs = []
    for _ in range(rounds):
        with fresh_root("served") as root:
            runs.append(serving.many_clients(made, root, clients=200, seconds=60 * scale))
    return {
        "unit": "milliseconds from the commit to the client's event, median",
        "commit_to_event_ms": median(one["commit_to_event_ms_p50"] for one in runs),
        "missed": sum(one["missed"] for one in runs),
        "server_cores": max(one["server_cores"] for one in runs),
        "server_rss_mb": max(one["server_rss_mb"] for one in runs),
        "runs": runs,
    }


def serve_page(scale: float, rounds: int) -> Facts:
    """How long does the server work when the page opens on 100 days of history?"""
    made = make("hundred_days", scale, corrections=0.005)
    with fresh_root("served-history") as root:
        places = ["--root", str(root), "--drop", str(made.drop), "--reference", str(made.reference)]
        right(arm("benchmarks.ours", "once", *places), made)
        runs = [serving.page_on_history(root) for _ in range(rounds)]
    return {
        "unit": "seconds for all that the page asks, one after the other",
        "cold_seconds": median(one["cold_seconds"] for one in runs),
        "warm_seconds": median(one["warm_seconds"] for one in runs),
        "runs": runs,
    }


def to_the_browser(scale: float, rounds: int) -> Facts:
    """How soon does a trade change the number in a browser? From the rename to the page's table."""
    made = make("stream", 0.5)
    runs = []
    for _ in range(rounds):
        with fresh_root("browser") as root:
            runs.append(serving.to_the_browser(made, root, files=int(80 * scale), warm_up=20))
    return {
        "unit": "seconds, file renamed -> number in the browser, median",
        "p50_seconds": median(one["p50_seconds"] for one in runs),
        "runs": runs,
    }


def each(found: dict[str, list[Facts]], fact: str) -> dict[str, list[float]]:
    """One fact of every arm, by its rounds."""
    return {name: [one[fact] for one in runs] for name, runs in found.items()}


def ratio(ours_: list[float], theirs: list[float]) -> float:
    """Median against median."""
    return round(median(ours_) / median(theirs), 3)
