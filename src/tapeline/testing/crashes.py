"""Failures at the named points between durable writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tapeline import failpoints

CRASH_POINTS = failpoints.POINTS
PULL_CRASH_POINTS = failpoints.PULL_POINTS


class Crash(BaseException):
    """What `crash_at` raises unless it is given another error; `except Exception` lets it pass."""


@contextmanager
def crash_at(point: str | None, error: BaseException | None = None) -> Iterator[None]:
    """Within the block, fail the first time that a point is reached; None lets all pass."""
    of_parts = (
        failpoints.PULL_POINTS,
        failpoints.QUERY_POINTS,
        failpoints.SINK_POINTS,
        failpoints.BUILD_POINTS,
    )
    known = (*failpoints.POINTS, *(point for points in of_parts for point in points))
    if point is not None and point not in known:
        raise ValueError(f"'{point}' is not a crash point. Use one of {', '.join(known)}.")
    armed = [point]

    def fail(reached: str) -> None:
        if armed == [reached]:
            armed.clear()
            raise error or Crash(reached)

    before, failpoints.listener = failpoints.listener, fail
    try:
        yield
    finally:
        failpoints.listener = before
