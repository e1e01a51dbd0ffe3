"""How much one batch of the tape may hold."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapeline.books.tape_batches import TapeRow


@dataclass(frozen=True)
class BatchLimits:
    """How much one batch of the tape may hold. The flow never splits it."""

    bytes: int = sys.maxsize
    records: int = sys.maxsize

    def allow(self, row: TapeRow, records: int, size: int) -> bool:
        """Whether so many more records and bytes fit into a batch."""
        return row.bytes + size <= self.bytes and row.records + records <= self.records
