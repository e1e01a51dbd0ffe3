"""How much room a pipeline takes, part by part, and how fast it grows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tapeline.books.commits import read_commits
from tapeline.books.layout import Layout
from tapeline.store.files import each_file

DAY_SECONDS = 86_400


def sizes_of(layout: Layout, now: datetime) -> dict[str, Any]:
    """Bytes by part; growth per day on average, once the first batch is a day old."""
    parts = dict.fromkeys(("tape", "books", "archive", "intake", "other"), 0)
    each_file(layout.home, lambda path, size: _add(parts, path.relative_to(layout.home), size))
    total = sum(parts.values())
    rows = read_commits(layout.commits, 1, 1)
    first = next((row.at for row in rows if row.publishes), None)
    days = (now - first).total_seconds() / DAY_SECONDS if first else 0
    # A day tells, an hour does not.
    return {**parts, "total": total, "growth_per_day": round(total / days) if days >= 1 else None}


def _add(parts: dict[str, int], path: Path, size: int) -> None:
    first, *rest = path.parts
    if first == "bronze":
        part = "tape"
    elif first in ("silver", "gold", "commits", "reference", "code", "generations"):
        part = "books"
    elif first == "intake":
        part = "archive" if rest[1:2] in (["archive"], ["rejected"]) else "intake"
    else:
        part = "other"
    parts[part] += size
