"""One thing that was looked at, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["well", "soon", "ill"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    words: str
    remedy: str = ""

    def facts(self) -> dict[str, str]:
        return asdict(self)
