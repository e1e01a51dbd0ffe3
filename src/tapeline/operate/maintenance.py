"""When housekeeping is due: between two batches, every few batches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from tapeline.books.fold import write_balances
from tapeline.flow.flow import Flow
from tapeline.store.housekeeping import remove_archived, tidy


class Maintenance:
    """Housekeeping of a running flow, in the same process, so that nothing else writes."""

    def __init__(
        self, flow: Flow, keep_archive: timedelta | None, clock: Callable[[], datetime]
    ) -> None:
        self._flow = flow
        self._clock = clock
        self._settings = flow.settings.housekeeping
        self._keep_archive = keep_archive
        self._done = flow.published_batch

    def after(self, batch: int) -> None:
        """Do what has become due with a batch."""
        before, self._done = self._done, batch

        def due(every: int) -> bool:
            return batch // every > before // every

        if due(self._settings.balances_every_batches):
            for summary in self._flow.plan.summaries:
                generation = self._flow.steps.generation(summary.name)
                write_balances(self._flow.layout, summary, batch, generation)
        if due(self._settings.compact_every_batches):
            self._tidy()

    def _tidy(self) -> None:
        flow = self._flow
        for book in (*flow.ledger.books.values(), flow.ledger.commits.book):
            tidy(book, self._settings)
        for name, tape in flow.tapes.items():
            tape.tidy(self._settings, flow.backlog.position[name])
            archive = flow.layout.intake(name) / "archive"
            remove_archived(archive, self._keep_archive, self._clock())
