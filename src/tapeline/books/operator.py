"""The operator's tape: acts of people as records, naming who, when and the original position.

Any process may add to it, also while the pipeline runs: it has a lock of its own. The flow takes
new acts along with its next batch, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tapeline.books.position import WHOLE, Position, position_of
from tapeline.books.schemas import MOMENT, POSITION
from tapeline.store.delta import TableWriter
from tapeline.store.delta_files import log_changed_at
from tapeline.store.duckdb import newest_batch, rows_of
from tapeline.store.files import make_folder
from tapeline.store.lock import alone

ACTS = pa.schema(
    [
        ("batch", pa.int64()),  # the act's number, gapless
        ("at", MOMENT),
        ("who", pa.string()),
        ("act", pa.string()),
        ("table", pa.string()),
        ("position", POSITION),
        ("stood_in", pa.int64()),  # the batch that gave the record the verdict acted upon
        ("record", pa.binary()),  # a corrected record, in the place of the original
        ("note", pa.string()),
    ]
)
REDRIVE, DISMISS = "redrive", "dismiss"
OF_ROW = " row "  # an act upon one row of a message is stored as 'redrive row 3'
GAP = "gap"  # of a source, not of a table: see gaps.py


@dataclass(frozen=True)
class Act:
    """What somebody decided about one record of a table."""

    act: str
    table: str
    position: Position
    stood_in: int
    record: bytes | None = None
    note: str = ""
    who: str = ""
    at: datetime | None = None
    number: int = 0

    def row(self) -> dict[str, Any]:
        source, part, at, row = self.position
        values = asdict(self)
        values["batch"] = values.pop("number")
        values["position"] = {"source": source, "part": part, "at": at}
        if row != WHOLE:
            values["act"] = f"{self.act}{OF_ROW}{row}"
        return values


class OperatorTape:
    """The acts of a pipeline's operators."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = -1
        self._last = 0

    def add(self, acts: Sequence[Act], who: str, at: datetime) -> list[Act]:
        """Record acts, durably; they take effect with the flow's next batch."""
        make_folder(self.folder)
        with alone(self.folder / ".lock"):
            first = newest_batch(self.folder) + 1
            numbered = [
                Act(a.act, a.table, a.position, a.stood_in, a.record, a.note, who, at, first + n)
                for n, a in enumerate(acts)
            ]
            book = TableWriter(self.folder, ACTS, "operator")
            for act in numbered:
                rows = pa.Table.from_pylist([act.row()], schema=ACTS)
                book.append(rows, act.number, f"{act.number:012}")
        return numbered

    def last(self) -> int:
        """The number of the newest act; looking again costs nothing while nothing was added."""
        changed = log_changed_at(self.folder)
        if changed and changed != self._seen:
            self._last, self._seen = newest_batch(self.folder), changed
        return self._last if changed else 0

    def since(self, number: int) -> list[Act]:
        """The acts after a number, in order."""
        columns = 'batch, "at", who, act, "table", position, stood_in, record, note'
        rows = rows_of(self.folder, columns, number + 1)
        return [_act(row) for row in sorted(rows, key=lambda row: row["batch"])]


def _act(row: dict[str, Any]) -> Act:
    act, _, number = row["act"].partition(OF_ROW)
    return Act(
        act,
        row["table"],
        position_of({**row["position"], "row": int(number) if number else WHOLE}),
        row["stood_in"],
        row["record"],
        row["note"],
        row["who"],
        row["at"],
        row["batch"],
    )
