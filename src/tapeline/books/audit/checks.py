"""One equation of the trial balance, and how two sides of it are compared."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tapeline.books import exact


@dataclass(frozen=True)
class Check:
    """One equation of the trial balance."""

    what: str
    expected: str
    found: str
    batch: int | None = None  # the first batch where it does not hold

    @property
    def balances(self) -> bool:
        return self.expected == self.found and self.batch is None

    @property
    def first(self) -> str:
        """Where it starts to differ, in words; nothing where no single batch is at fault."""
        return f", first in batch {self.batch}" if self.batch is not None else ""

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "balances": self.balances}


def compared(what: str, expected: dict[int, Any], found: dict[int, Any]) -> Check:
    """Two amounts by batch, which add up to what is shown."""
    batches = sorted({*expected, *found})
    wrong = next((b for b in batches if expected.get(b, 0) != found.get(b, 0)), None)
    said, held = (exact.text(exact.total(side.values())) for side in (expected, found))
    return Check(what, said, held, wrong)


def equal(what: str, wrong: int | None) -> Check:
    """What has no amount to show: it is equal, or differs from a batch on."""
    return Check(what, "equal", "equal" if wrong is None else "different", wrong)
