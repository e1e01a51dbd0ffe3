"""What tests ask of books: do they balance, what was committed, what waits and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tapeline.books import Books
from tapeline.books.audit import Check, audit
from tapeline.books.commits import CommitRow, read_commits
from tapeline.books.quarantine import QuarantineFilter
from tapeline.books.quarantine import quarantined as _quarantined
from tapeline.books.revisions import changes, why
from tapeline.books.status import Status, read_status

__all__ = ["changes", "commits_of", "quarantined", "status_of", "unbalanced", "why"]


def unbalanced(books: Books, full: bool = False) -> list[Check]:
    """The checks of `tapeline audit` that fail; `full` looks at old batches again."""
    return [check for check in audit(books, full) if not check.balances]


def status_of(books: Books) -> Status:
    """What the run of a pipeline says of itself; nothing but defaults before the first."""
    return read_status(books.layout.status) or Status()


def commits_of(books: Books) -> list[CommitRow]:
    """The rows of the commits table, in order."""
    return read_commits(books.layout.commits)


def quarantined(
    books: Books,
    table: str | None = None,
    reason: str | None = None,
    source: str | None = None,
    since: datetime | None = None,
    positions: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The records in quarantine, newest batch first, as `tapeline quarantine list` chooses them."""
    return _quarantined(books, QuarantineFilter(table, reason, source, since, positions))
