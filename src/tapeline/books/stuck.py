"""A flow that cannot advance: since when, at which batch, after how many attempts, and why.

This is kept across restarts: a batch that fails again after a restart has failed since the first
time. It ends when that batch is published.
"""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

from datetime import datetime

from tapeline.store.document import Document, Text
from tapeline.terminal import as_words


class Stuck(Document):
    """A batch that keeps failing."""

    since: Text = ""
    batch: int = 0
    tapes: dict[Text, tuple[int, int]] = {}  # the tape batches that it reads, first and last
    attempts: int = 1
    at: Text = ""
    error: Text = ""


def failed_again(
    before: Stuck | None, batch: int, tapes: dict[str, tuple[int, int]], error: str, now: datetime
) -> Stuck:
    """A batch failed; if it is the one that failed before, that is remembered."""
    known = before if before is not None and before.batch == batch else None
    return Stuck(
        since=known.since if known else now.isoformat(),
        batch=batch,
        tapes=tapes,
        attempts=(known.attempts if known else 0) + 1,
        at=now.isoformat(),
        error=error,
    )


def after_batch(stuck: Stuck | None, published: int) -> Stuck | None:
    """None once the failed batch has been published."""
    return stuck if stuck is not None and stuck.batch > published else None


def words_of_stuck(stuck: Stuck) -> str:
    """The same as text: 'has not advanced since ...'."""
    ranges = [
        f"{name} tape batch {first}" if first == last else f"{name} tape batches {first} to {last}"
        for name, (first, last) in stuck.tapes.items()
    ]
    where = ", ".join(ranges) or "operator actions"
    times = "once" if stuck.attempts == 1 else f"{stuck.attempts} times"
    return (
        f"has not advanced since {as_words(stuck.since)} UTC: batch {stuck.batch} ({where}) failed "
        f"{times}, last error: {stuck.error}"
    )
