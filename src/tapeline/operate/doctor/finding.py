"""The result of one check, and how to fix the problem it found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    state: State
    words: str
    remedy: str = ""

    def facts(self) -> dict[str, str]:
        return asdict(self)
