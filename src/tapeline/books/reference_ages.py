"""When references from outside were last read, and what went wrong since."""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

from datetime import datetime, timedelta

from tapeline.books.layout import Layout
from tapeline.books.status import read_document
from tapeline.store.document import Document, Text
from tapeline.store.files import make_folder, replace_json
from tapeline.words import counted


class ReferenceAge(Document):
    """What is known about one reference that lives elsewhere."""

    reference: Text = ""
    reads: Text = ""
    every_seconds: float = 0.0
    read_at: Text | None = None  # the last time that reading succeeded
    rows: int = 0
    failures: int = 0  # since then
    failing_since: Text | None = None
    error: Text | None = None

    def age_seconds(self, now: datetime) -> float | None:
        """How old the rows are that batches use."""
        if self.read_at is None:
            return None
        return max(0.0, (now - datetime.fromisoformat(self.read_at)).total_seconds())

    def is_due(self, now: datetime) -> bool:
        age = self.age_seconds(now)
        return age is None or age >= self.every_seconds

    def words(self, now: datetime) -> str:
        """Its age, in one line."""
        age = self.age_seconds(now)
        words = f"{counted(self.rows, 'row')} of {self.reads}, "
        words += "never read" if age is None else f"read {_ago(age)} ago"
        words += f", read again after {_ago(self.every_seconds)}"
        if self.error:
            since = f"; {counted(self.failures, 'failure')} since {self.failing_since}: "
            words += since + self.error.rstrip(".")
        return words


class ReferenceAges(Document):
    """All references of a pipeline that live elsewhere."""

    references: list[ReferenceAge] = []


def read_ages(layout: Layout) -> list[ReferenceAge]:
    """The references from outside, as the last run knew them."""
    return (read_document(layout.reference_status, ReferenceAges) or ReferenceAges()).references


def write_ages(layout: Layout, ages: list[ReferenceAge]) -> None:
    make_folder(layout.home)
    replace_json(layout.reference_status, ReferenceAges(references=ages).as_dict())


def _ago(seconds: float) -> str:
    whole = timedelta(seconds=round(seconds))
    if whole >= timedelta(days=1):
        return counted(whole.days, "day")
    if whole >= timedelta(hours=1):
        return counted(whole.seconds // 3600, "hour")
    if whole >= timedelta(minutes=1):
        return counted(whole.seconds // 60, "minute")
    return f"{seconds:.0f} s"
