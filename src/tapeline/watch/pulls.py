"""What `tapeline pull` says of itself, for those who watch: when, how much, how it stands."""

from __future__ import annotations

from typing import Any

from tapeline.books.layout import Layout
from tapeline.watch.status import read_status


def read_pulls(layout: Layout) -> dict[str, Any]:
    """How the pulls stood when they were last asked; no pulls when they never were."""
    return read_status(layout.pull_status) or {"running": False, "at": None, "pulls": []}


def words_of(pull: dict[str, Any], running: bool) -> str:
    """How one pull stands, in one line."""
    asked = pull["asked_at"] or "never"
    words = [
        f"{pull['records_ever']:,} records so far, last asked {asked}",
        f"stands at {pull['position'] or 'the beginning'}",
    ]
    if pull["failures"]:
        words.append(f"{pull['failures']:,} failures since its start")
    if pull["incident"]:
        words.append(pull["incident"]["error"].rstrip("."))
    if not running:
        words.append("'tapeline pull' does not run")
    elif pull["next_at"]:
        words.append(f"asks next at {pull['next_at']}")
    return "; ".join(words)
