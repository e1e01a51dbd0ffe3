"""How much one batch of the tape may hold."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchLimits:
    """How much one batch of the tape may hold. The flow never splits it."""

    bytes: int = sys.maxsize
    records: int = sys.maxsize
