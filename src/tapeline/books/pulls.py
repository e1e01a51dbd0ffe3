"""The status of `tapeline pull`: when it last ran, how much it fetched and its position."""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

from tapeline.books.layout import Layout
from tapeline.books.status import IncidentStatus, is_running, read_document
from tapeline.store.document import Document, Text
from tapeline.words import counted


class PullStatus(Document):
    """What one pull says of itself."""

    pull: Text = ""
    into: Text = ""
    asks: Text = ""
    position: Text | int | None = None
    caught_up: bool = False
    lag_records: int | None = None
    drop_folder_full: bool = False
    records: int = 0
    files: int = 0
    records_ever: int = 0
    files_ever: int = 0
    asked_at: Text | None = None
    pulled_at: Text | None = None
    failures: int = 0
    next_at: Text | None = None
    incident: IncidentStatus | None = None


class PullsStatus(Document):
    """What a running `tapeline pull` says of itself."""

    pid: int | None = None
    running: bool = False
    at: Text | None = None
    pulls: list[PullStatus] = []


def read_pulls(layout: Layout) -> PullsStatus:
    """The last known status of the pulls; empty if there never was one."""
    found = read_document(layout.pull_status, PullsStatus) or PullsStatus()
    return found.model_copy(update={"running": is_running(found)})


def words_of(pull: PullStatus, running: bool) -> str:
    """The status of one pull, in one line."""
    words = [
        f"{counted(pull.records_ever, 'record')} so far, last asked {pull.asked_at or 'never'}",
        f"position: {pull.position or 'start'}",
    ]
    if pull.failures:
        words.append(f"{counted(pull.failures, 'failure')} since the start")
    if pull.incident:
        words.append(pull.incident.error.rstrip("."))
    if not running:
        words.append("'tapeline pull' is not running")
    elif pull.next_at:
        words.append(f"next at {pull.next_at}")
    return "; ".join(words)
