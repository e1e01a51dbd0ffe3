"""Run the benchmarks: `python -m benchmarks short`, `all`, or single questions by name.

Results go to benchmarks/results/<question>.json with the machine they came from; the table in
docs/performance.md is made from them. Nothing here is asserted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    costs,
    kafka_burst,
    kafka_questions,
    peer_questions,
    scenarios,
    starts,
    workloads,
)
from benchmarks.machine import facts
from benchmarks.table import write_table

RESULTS = Path(__file__).parent / "results"
SHORT = {"micro_batch": (0.5, 1), "live_latency": (0.3, 1), "catch_up": (0.1, 1)}
ALL = {
    "micro_batch": (0.5, 3),
    "batch_sizes": (1.0, 3),
    "live_latency": (0.5, 3),
    "rates": (1.0, 1),
    "burst": (1.0, 1),
    "catch_up": (1.0, 3),
    "peers": (1.0, 3),
    "history": (1.0, 1),
    "hundred_days": (1.0, 1),
    "late_ages": (1.0, 3),
    "questions": (1.0, 1),
    "backlog": (1.0, 1),
    "corrections": (0.5, 3),
    "guarantees": (0.5, 3),
    "memory": (1.0, 1),
    "recovery": (0.3, 1),
    "soak": (1.0, 1),
    "small_files": (1.0, 1),
    "serve_load": (1.0, 1),
    "serve_page": (1.0, 3),
    "chart_clients": (1.0, 1),
    "to_the_browser": (1.0, 1),
    "set_up": (1.0, 1),
    "starts": (1.0, 3),
    "kafka_ingest": (1.0, 3),
    "kafka_latency": (1.0, 3),
    "kafka_delivery": (1.0, 3),
    "kafka_burst": (1.0, 1),
}


def question_of(name: str) -> Callable[[float, int], scenarios.Facts]:
    """The function of a question's name."""
    found: Callable[[float, int], scenarios.Facts]
    rooms = (scenarios, workloads, costs, starts, kafka_questions, kafka_burst, peer_questions)
    found = next(getattr(room, name) for room in rooms if hasattr(room, name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", help="short, all, or " + ", ".join(ALL))
    parser.add_argument("--scale", type=float)
    parser.add_argument("--rounds", type=int)
    asked = parser.parse_args()
    chosen: dict[str, tuple[float, int]] = {}
    for name in asked.what:
        chosen |= {"short": SHORT, "all": ALL}.get(name) or {name: ALL[name]}
    RESULTS.mkdir(exist_ok=True)
    for name, usual in chosen.items():
        scale, rounds = asked.scale or usual[0], asked.rounds or usual[1]
        ask = question_of(name)
        question = ask.__doc__
        print(f"{name}: {question} (scale {scale:g}, {rounds} rounds) ...", flush=True)
        before = facts()
        started = time.monotonic()
        found = ask(scale, rounds)
        result = {
            "question": question,
            "scale": scale,
            "rounds": rounds,
            "seconds": round(time.monotonic() - started),
            "machine": before,
            "found": found,
        }
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        shown = {key: value for key, value in found.items() if key not in ("runs", "hundreds")}
        print(json.dumps(shown, indent=1), flush=True)
    write_table(RESULTS)


if __name__ == "__main__":
    main()
