"""Gaps: messages that a cluster lost before the tape had them, and that somebody went on without.

A gap is an act on the operator's tape. It says where the source goes on, so after a crash it is
part of the position: it is neither found nor written twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tapeline.books.operator import GAP, Act, OperatorTape
from tapeline.books.position import Position
from tapeline.store.duckdb import arrow_of


@dataclass(frozen=True)
class Gap:
    """Offsets of one partition that are not on the tape and never will be."""

    source: str
    topic: str
    partition: int
    kind: str  # KAFKA_DATA_LOSS, TOPIC_REPLACED or CLUSTER_REPLACED
    first: int
    last: int | None  # None: nobody can know how far a topic went that is gone
    goes_on: int  # at this offset,
    identity: str  # of this topic
    behind: int  # the last delivery before it
    words: str = ""
    who: str = ""
    at: datetime | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"

    def facts(self) -> dict[str, Any]:
        """What an audit says of it."""
        return {
            "source": self.source,
            "topic": self.topic,
            "partition": self.partition,
            "kind": self.kind,
            "from": self.first,
            "to": self.last,
            "goes_on_at": self.goes_on,
            "words": self.words,
            "at": self.at and self.at.isoformat(),
            "accepted_by": self.who,
        }


def accept_gap(tape: OperatorTape, gap: Gap, who: str, at: datetime) -> None:
    """Record, durably, that the source continues after a gap."""
    said = {k: v for k, v in asdict(gap).items() if k not in ("words", "who", "at")}
    place = Position(gap.source, gap.partition, gap.first)
    record = json.dumps(said).encode("ascii")
    tape.add([Act(GAP, "", place, 0, record, gap.words)], who, at)


def gaps_of(folder: Path, source: str | None = None) -> list[Gap]:
    """The gaps of a pipeline, or of one of its sources, in the order in which they were found."""
    columns = 'batch, "at", who, record, note'
    rows = arrow_of(folder, columns, f"act = '{GAP}'").to_pylist()
    found = [_gap(row) for row in sorted(rows, key=lambda row: row["batch"])]
    return [gap for gap in found if source in (None, gap.source)]


def _gap(row: Mapping[str, Any]) -> Gap:
    said = json.loads(row["record"])
    return Gap(**said, words=row["note"], who=row["who"], at=row["at"])
