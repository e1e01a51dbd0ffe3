"""The batches of a tape: rows of tape_batches, and how staged pieces are divided among them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from tapeline.books.batch_limits import BatchLimits
from tapeline.books.layout import Layout
from tapeline.books.pieces import DeliveryPart, PieceFacts
from tapeline.books.schemas import TAPE_BATCHES
from tapeline.store.duckdb import LAST_BATCH, rows_of

COLUMNS = 'batch, "at", pieces, records, bytes, deliveries'


@dataclass(frozen=True)
class TapeBatch:
    """One numbered batch of the tape."""

    number: int
    at: datetime
    pieces: tuple[int, ...]
    records: int
    bytes: int
    hash: int = 0  # of its row in tape_batches
    deliveries: tuple[DeliveryPart, ...] = field(default=(), compare=False, repr=False)

    @property
    def first_delivery(self) -> int:
        return min((part.delivery for part in self.deliveries), default=0)

    @property
    def last_delivery(self) -> int:
        return max((part.delivery for part in self.deliveries), default=0)


@dataclass(frozen=True)
class TapeRow:
    """A row of tape_batches. Its hash is computed over the text of its deliveries as it is."""

    batch: int
    at: datetime
    pieces: Sequence[int] = ()
    records: int = 0
    bytes: int = 0
    deliveries: str = "[]"

    @property
    def hash(self) -> int:
        """Those of several rows are added up."""
        moment = self.at.astimezone(UTC).isoformat()
        pieces = ",".join(map(str, self.pieces))
        values = [self.batch, moment, pieces, self.records, self.bytes, self.deliveries]
        text = json.dumps([str(value) for value in values])
        return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)

    @property
    def stored(self) -> pa.Table:
        """As the table has it."""
        return pa.Table.from_pylist([vars(self)], TAPE_BATCHES)

    @property
    def decided(self) -> TapeBatch:
        """The batch that it decides."""
        parts = tuple(DeliveryPart(**part) for part in json.loads(self.deliveries))
        pieces = tuple(self.pieces)
        return TapeBatch(self.batch, self.at, pieces, self.records, self.bytes, self.hash, parts)


WHOLE = BatchLimits()


def read_rows(folder: Path, since: int, until: int = LAST_BATCH) -> list[TapeRow]:
    """The rows of a table from a batch on, through another, in order."""
    found = (TapeRow(**row) for row in rows_of(folder, COLUMNS, since, until))
    return sorted(found, key=lambda row: row.batch)


def deliveries_of(layout: Layout, source: str) -> list[DeliveryPart]:
    """What the tape of a source holds of which delivery, for readers that do not write it."""
    rows = read_rows(layout.tape_batches(source), 0)
    return [part for row in rows for part in row.decided.deliveries]


def divided(
    pieces: Iterable[tuple[PieceFacts, int]], limits: BatchLimits, first: int, now: datetime
) -> list[TapeRow]:
    """A row for each batch: as many pieces, each with its size, as fit, and at least one."""
    rows: list[tuple[TapeRow, list[PieceFacts]]] = []
    for piece, size in pieces:
        if not rows or not limits.allow(rows[-1][0], piece.records, size):
            rows.append((TapeRow(first + len(rows), now), []))
        row, held = rows[-1]
        held.append(piece)
        more = replace(row, records=row.records + piece.records, bytes=row.bytes + size)
        rows[-1] = more, held
    return [
        replace(
            row,
            pieces=[piece.piece for piece in held],
            deliveries=json.dumps([asdict(part) for piece in held for part in piece.deliveries]),
        )
        for row, held in rows
    ]


class PieceSet:
    """Piece numbers on the tape: all through one number, and a few ahead of it."""

    def __init__(self) -> None:
        self.through = 0
        self._ahead: set[int] = set()

    @property
    def highest(self) -> int:
        return max(self._ahead, default=self.through)

    def add(self, numbers: Iterable[int]) -> None:
        self._ahead.update(numbers)
        while self.through + 1 in self._ahead:
            self.through += 1
            self._ahead.remove(self.through)

    def __contains__(self, number: int) -> bool:
        return number <= self.through or number in self._ahead
