"""Whether a run has so little to do that compiling its code would take longer than running it."""

from __future__ import annotations

from typing import Any

from tapeline.books import Layout
from tapeline.books.status import Status, read_document
from tapeline.declare.source import SomeIntakes
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.store.files import bytes_below, is_there

# A few hundred records. More of them are worth Java's second compiler.
FEW_BYTES = 100_000


def is_short(plan: Plan, settings: Settings) -> bool:
    """Whether a handful of records wait in drop folders, and none anywhere else."""
    layout = Layout(settings.home(plan.name))
    waiting = _Waiting(settings)
    for name, source in plan.pipeline.sources.items():
        if is_there(layout.tape(name)) and not _all_booked(layout):
            return False
        if source.connector.taken_by(waiting) is None:
            return False
    return waiting.bytes <= FEW_BYTES


def _all_booked(layout: Layout) -> bool:
    """Whether the last run ended as it should, with nothing left on the tapes."""
    status = read_document(layout.status, Status)
    return status is not None and not status.running and not status.lag_records


class _Waiting(SomeIntakes):
    """Adds up what waits in drop folders. Of other sources nobody knows without asking them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.bytes = 0

    def from_folder(self, files: Any) -> int:
        self.bytes += bytes_below(self._settings.within(files.path), FEW_BYTES)
        return self.bytes
