"""How far the partitions of a source are: what is published, and the gaps that were accepted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from tapeline.books.gaps import Gap


class NextOffsets:
    """Where each partition goes on, and of which topic that is."""

    def __init__(self, gaps: Iterable[Gap] = ()) -> None:
        self.next: dict[str, int] = {}
        self.identity: dict[str, str] = {}
        self.noted = 0  # the last delivery
        # Deliveries are numbered in order, and a gap knows which one came before it.
        self._gaps = deque(sorted(gaps, key=lambda gap: gap.behind))

    def note(self, part: Mapping[str, Any]) -> None:
        """A part of a piece is published; parts come in order, and again after an error."""
        if part["delivery"] <= self.noted:
            return
        self.pass_gaps(part["delivery"])
        self.noted = part["delivery"]
        self.identity[part["name"]] = part.get("identity") or ""
        self.next[part["name"]] = part["last_line"] + 1

    def pass_gaps(self, delivery: int | None = None) -> None:
        """Continue after the gaps before a delivery, or after all of them."""
        while self._gaps and (delivery is None or self._gaps[0].behind < delivery):
            self.skip(self._gaps.popleft())

    def skip(self, gap: Gap) -> None:
        self.identity[gap.name] = gap.identity
        self.next[gap.name] = gap.goes_on
