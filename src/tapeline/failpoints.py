"""Named points between durable writes, where the drills let a process die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

POINTS = (
    *("tape_decided", "tape_added", "tape_committed"),
    *("computed", "staged", "decided", "added", "finished"),
)
# of `tapeline pull`, a process of its own
PULL_POINTS = ("pull_fetched", "pull_written", "pull_decided", "pull_delivered")

# of a build, when code is changed
BUILD_POINTS = ("build_begun", "build_staged", "build_decided", "build_finished", "switch_decided")
# of the intake of a Structured Streaming query
QUERY_POINTS = ("query_batch",)

# of a sink's deliverer
SINK_POINTS = ("sink_sent", "sink_committed")

# Hears of every point when a test sets it, and may raise: `tapeline.testing.crash_at`.
listener: Callable[[str], None] | None = None


def hit(point: str) -> None:
    """Die here by SIGKILL if TAPELINE_FAILPOINTS names this point: "decided=3", the third time."""
    if listener is not None:
        listener(point)
    said = os.environ.get("TAPELINE_FAILPOINTS")
    if said:
        _count(point, said)


_reached: dict[str, int] = {}


def _count(point: str, said: str) -> None:
    _reached[point] = _reached.get(point, 0) + 1
    for item in said.split(","):
        name, _, times = item.partition("=")
        if name == point and _reached[point] == int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)
