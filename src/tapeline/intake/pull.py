"""One pull at work: a page fetched, handed over to the drop folder, and what there is to say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tapeline.books.pulls import PullStatus
from tapeline.connect.pulling import Reader
from tapeline.declare import Pull
from tapeline.failpoints import hit
from tapeline.intake.handover import Handover

FILES_AHEAD = 1_000  # with so many files in the drop folder nothing more is fetched
AHEAD_SECONDS = 1.0


@dataclass
class ActivePull:
    """One pull at work: who reads, where it goes, and when it is due."""

    pull: Pull
    reader: Reader
    handover: Handover
    due: float = 0.0
    caught_up: bool = False
    asked_at: datetime | None = None
    pulled_at: datetime | None = None
    failures: int = 0
    behind: int | None = None
    records: int = 0
    files: int = 0
    full: bool = False

    def step(self, now: datetime) -> float | None:
        """Fetch one page and hand it over; how soon to ask again, None when all has come."""
        self.asked_at = now
        self.handover.finish()
        self.full = self.handover.files_ahead(FILES_AHEAD) >= FILES_AHEAD
        if self.full:
            return AHEAD_SECONDS
        page = self.reader.page(self.handover.stands.position)
        hit("pull_fetched")
        self.handover.deliver(page.lines, page.position)
        self.records += len(page.lines)
        self.files += bool(page.lines)
        self.pulled_at = now if page.lines else self.pulled_at
        self.behind = page.behind
        self.caught_up = page.again_seconds is None
        return page.again_seconds

    def status(self) -> PullStatus:
        """What it says of itself; who runs it knows when it is due."""
        stands = self.handover.stands
        return PullStatus(
            pull=self.pull.name,
            into=self.pull.into,
            asks=self.pull.system.asks,
            position=self.position,
            caught_up=self.caught_up,
            lag_records=0 if self.caught_up else self.behind,
            drop_folder_full=self.full,
            records=self.records,
            files=self.files,
            records_ever=stands.records,
            files_ever=stands.files,
            asked_at=self.asked_at.isoformat() if self.asked_at else None,
            pulled_at=self.pulled_at.isoformat() if self.pulled_at else None,
            failures=self.failures,
        )

    @property
    def position(self) -> str | None:
        """Where it stands in the system it asks."""
        found = self.handover.stands.position or {}
        return found.get("cursor", found.get("after"))
