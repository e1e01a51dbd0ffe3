"""What the peers with an environment of their own are given, and what they answer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks import sums
from benchmarks.clock import seconds_since_start


def asked(doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc)
    for name in ("drop", "reference", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    return parser.parse_args()


def answer(arm: str, rows: Iterable[sums.Row], ready_seconds: float) -> str:
    """The line that every arm ends with."""
    rows, done = list(rows), seconds_since_start()
    facts = {
        "event": "done",
        "arm": arm,
        "trades": sums.trades(rows),
        "checksum": sums.checksum(rows),
        "seconds_from_start": round(done, 3),
        "seconds_from_ready": round(done - ready_seconds, 3),
    }
    return json.dumps(facts)
