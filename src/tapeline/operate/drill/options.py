"""What somebody wants drilled, and what a drill did and found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DrillOptions:
    """What somebody wants drilled."""

    target: str
    folder: Path
    seed: int = 1
    trades: int = 100_000
    kills: int = 50
    given: Path | None = None  # files of the user's own; else the simulator's

    @property
    def project(self) -> Path:
        """Where the drilled books are kept, next to the pipeline's own files."""
        return self.folder / "drilled"

    @property
    def truth(self) -> Path:
        """What the simulator meant, before any line was formatted."""
        return self.folder / "truth.jsonl"

    def target_in(self, project: Path) -> str:
        """The pipeline's file in a copy of its project; a module is the same everywhere."""
        return self.target if self.given is None else str(project / Path(self.target).name)


@dataclass
class DrillReport:
    """What a drill did and found."""

    seed: int
    records: int = 0
    kills: list[dict[str, Any]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def facts(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "records": self.records,
            "kills": len(self.kills),
            "killed_at": dict(Counter(kill["at"] for kill in self.kills)),
            "differences": self.differences,
            "seconds": round(self.seconds),
        }
