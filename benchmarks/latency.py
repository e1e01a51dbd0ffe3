"""How soon a trade changes the number: files sent at a fixed pace, the total read from outside.

    python -m benchmarks.latency --scale 0.2 [--plain]      measures the pipeline by hand

The sender does not wait for the pipeline (open loop). The reader asks `read_total`, the number of
trades in the summary, again and again; a file has arrived with the first answer that counts all
of its trades. Both arms are read like this, without Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median

from benchmarks.generate import Input, bench_folder, make

TRADES_PER_SECOND = 400
LINES_PER_FILE = 200
POLL_SECONDS = 0.05


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]


@dataclass
class Sent:
    """A file on its way: when it was due, when it appeared, and the total that includes it."""

    total: int
    due: float
    renamed: float = 0.0
    seen: float | None = None


@dataclass
class Latency:
    """What a run of files found. Seconds run from the rename to the end of the first read.

    A file that was never seen counts with the time it was waited for: the figures are then lower
    bounds, and `never_seen` says so.
    """

    files: list[Sent]
    warm_up: int
    ended: float = 0.0
    reads: int = 0
    read_seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        # A last file that brings nothing new is counted before it is sent, and then not sent.
        measured = [one for one in self.files[self.warm_up :] if one.renamed]
        waits = [(one.seen or self.ended) - one.renamed for one in measured]
        behind = [one.renamed - one.due for one in self.files if one.renamed]
        # A pipeline that falls behind has no latency: later files then wait longer.
        half = max(1, len(waits) // 2)
        return {
            "files": len(measured),
            "warm_up_files": self.warm_up,
            "never_seen": sum(one.seen is None for one in measured),
            "sender_behind_ms_max": round(max(behind) * 1000, 1),
            "reads": self.reads,
            "read_ms_p50": round(median(self.read_seconds) * 1000, 2),
            "read_errors": len(self.errors),
            **{f"p{one}_seconds": round(percentile(waits, one), 3) for one in (50, 95, 99)},
            "max_seconds": round(max(waits), 3),
            "first_half_p50_seconds": round(median(waits[:half]), 3),
            "second_half_p50_seconds": round(median(waits[-half:]), 3),
        }


def steady(files: int, trades_per_second: float = TRADES_PER_SECOND) -> list[float]:
    """When each of so many files is due."""
    return [place * LINES_PER_FILE / trades_per_second for place in range(files)]


def send(
    paths: Sequence[Path], drop: Path, sents: Sequence[Sent], stop: threading.Event | None = None
) -> None:
    """Bring files to a drop folder, each when it is due: written hidden, then renamed."""
    drop.mkdir(parents=True, exist_ok=True)
    for path, sent in zip(paths, sents, strict=True):
        hidden = drop / f".{path.name}.part"
        hidden.write_bytes(path.read_bytes())
        wait = sent.due - time.monotonic()
        if stop is not None:
            if stop.wait(max(0.0, wait)):
                return
        elif wait > 0:
            time.sleep(wait)
        # Spark orders files by their time of change, and leaves out what is older than its newest.
        os.utime(hidden)
        sent.renamed = time.monotonic()
        os.replace(hidden, drop / path.name)


def measure(
    made: Input,
    drop: Path,
    read_total: Callable[[], int],
    warm_up: int = 40,
    due_seconds: Sequence[float] = (),
    drain_seconds: float = 120.0,
) -> Latency:
    """Send an input's files at a pace and watch the total until the last one is counted.

    Each file is due at its second of `due_seconds`, by default at 400 trades a second. `warm_up`
    files are sent at the same pace and left out of the figures. Reading ends `drain_seconds` after
    the last file, whatever was seen by then.
    """
    if not made.cumulative:
        raise ValueError(f"{made.folder} has corrections: its totals after each file are unknown")
    if warm_up >= len(made.files):
        raise ValueError(f"{len(made.files)} files are not enough for {warm_up} of warm-up")
    due_seconds = due_seconds or steady(len(made.files))
    begin = time.monotonic() + 0.5
    sents = [
        Sent(total, begin + due) for total, due in zip(made.cumulative, due_seconds, strict=True)
    ]
    latency = Latency(sents, warm_up)
    stop = threading.Event()
    sender = threading.Thread(target=send, args=(made.files, drop, sents, stop), daemon=True)
    sender.start()
    try:
        watch(latency, read_total, sents[-1].due + drain_seconds)
    finally:
        latency.ended = time.monotonic()
        stop.set()
        sender.join()
    return latency


def watch(latency: Latency, read_total: Callable[[], int], until: float) -> None:
    """Read the total again and again until the last file is counted, or the time is up."""
    waiting = 0
    while waiting < len(latency.files) and time.monotonic() < until:
        started = time.monotonic()
        try:
            total = read_total()
        except Exception as error:  # noqa: BLE001 - a reader may meet a table in the middle of a change
            latency.errors.append(repr(error))
            total = -1
        now = time.monotonic()
        latency.reads += 1
        latency.read_seconds.append(now - started)
        while waiting < len(latency.files) and latency.files[waiting].total <= total:
            latency.files[waiting].seen = now
            waiting += 1
        time.sleep(max(0.0, POLL_SECONDS - (now - started)))


def by_hand(made: Input, tuned: bool, watermark: str = "60 days") -> dict[str, object]:
    """The latency of the pipeline by hand, on a fresh root."""
    from benchmarks.by_hand import GoldTotal, gold_rows
    from benchmarks.measure import running
    from benchmarks.sums import checksum

    root = bench_folder() / "runs" / f"latency-by-hand-{os.getpid()}"
    drop = root / "drop"
    drop.mkdir(parents=True)
    arguments = ["benchmarks.by_hand", "--root", str(root), "--drop", str(drop)]
    arguments += ["--reference", str(made.reference), "--watermark", watermark]
    arguments += ["--tuned"] * tuned
    log = bench_folder() / "logs" / f"{root.name}.log"
    try:
        with running(arguments, log) as arm:
            ready = arm.wait_for("ready", 120)
            latency = measure(made, drop, GoldTotal(root))
            usage = arm.watch.sample()
            arm.stop()
        right = checksum(gold_rows(root)) == made.checksum
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {
        "arm": "by_hand",
        "tuned": tuned,
        "right": right,
        **latency.summary(),
        "ready_seconds": ready["seconds_from_start"],
        "cpu_seconds": round(usage.cpu_seconds, 1),
        "peak_rss_mb": usage.peak_rss_bytes >> 20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--plain", action="store_true", help="Spark's defaults")
    parser.add_argument("--watermark", default="60 days")
    asked = parser.parse_args()
    load = os.getloadavg()
    found = by_hand(make("stream", asked.scale), not asked.plain, asked.watermark)
    print(json.dumps({**found, "load_before": load}), flush=True)


if __name__ == "__main__":
    main()
