"""The tape: every record exactly as it arrived, in numbered batches that decide.

A row of tape_batches decides a batch; then its pieces are hard-linked into the table and added
under that number. A retry first finishes what is decided and leaves out pieces already listed, so
Spark's own checkpoint may repeat or forget what it likes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tapeline.books.layout import Layout
from tapeline.books.pieces import PIECE_SCHEMA, describe
from tapeline.books.row_hash import listed_hash
from tapeline.books.schemas import (
    FILE,
    FILE_COLUMNS,
    FILE_LEAF,
    MESSAGE,
    MESSAGE_COLUMNS,
    MESSAGE_LEAF,
    TAPE_BATCHES,
    TAPE_LEAF,
)
from tapeline.errors import OperationError
from tapeline.failpoints import hit
from tapeline.settings import HousekeepingSettings
from tapeline.store.delta import StagedFile, TableWriter
from tapeline.store.duckdb import connect, register_tape, rows_of
from tapeline.store.files import sync
from tapeline.store.housekeeping import tidy

MOST_COUNTED_AHEAD = 100
LEAF_COLUMNS = [name for name in TAPE_LEAF.names if name != "ordinal"]


@dataclass(frozen=True)
class TapeBatch:
    """One numbered batch of the tape."""

    number: int
    at: datetime
    pieces: tuple[int, ...]
    records: int
    bytes: int
    hash: int = 0  # of its row in tape_batches
    first_delivery: int = 0


class Tape:
    """The writer's side of one source's tape."""

    def __init__(self, layout: Layout, source: str, clock: Callable[[], datetime]) -> None:
        self.source = source
        self._clock = clock
        # Another source's thread may keep house while this one's commits.
        self._alone = threading.Lock()
        self._accepted = layout.intake(source) / "accepted"
        self._batches = TableWriter(
            layout.tape_batches(source), TAPE_BATCHES, f"tape_batches/{source}"
        )
        self.book = TableWriter(layout.tape(source), PIECE_SCHEMA, f"tape/{source}")
        self._recover()

    @property
    def last_piece(self) -> int:
        return self._listed.through

    def recover(self) -> list[TapeBatch]:
        """After a commit that failed half-way: what is decided is finished, and given back."""
        if self._sound:
            return []
        with self._alone:
            before = self.last_batch
            self._batches.reopen()
            self.book.reopen()
            self._recover()
        return self.since(before)

    def portions(self, pieces: Iterable[Path], most_records: int) -> list[list[Path]]:
        """Pieces that are not on the tape yet, in order, in groups of at most so many records."""
        groups: list[list[Path]] = []
        room = 0
        for path in sorted(p for p in pieces if int(p.stem) not in self._listed):
            records = describe(path).records
            if not groups or records > room:
                groups.append([])
                room = most_records
            groups[-1].append(path)
            room -= records
        return groups

    def commit(self, pieces: Iterable[Path]) -> TapeBatch | None:
        """Put pieces on the tape as one batch; those already there are left out."""
        with self._alone:
            return self._commit(pieces)

    def _commit(self, pieces: Iterable[Path]) -> TapeBatch | None:
        fresh = sorted(p for p in pieces if int(p.stem) not in self._listed)
        if not fresh:
            return None
        facts = [describe(path) for path in fresh]
        deliveries = [asdict(d) for fact in facts for d in fact.deliveries]
        row = {
            "batch": self.last_batch + 1,
            "at": self._clock(),
            "pieces": [int(path.stem) for path in fresh],
            "records": sum(fact.records for fact in facts),
            "bytes": sum(path.stat().st_size for path in fresh),
            "deliveries": json.dumps(deliveries),
        }
        batch = _tape_batch(row)
        rows = pa.Table.from_pylist([row], schema=TAPE_BATCHES)
        self._sound = False
        self._batches.append(rows, batch.number, f"{batch.number:012}")
        hit("tape_decided")
        self._finish(batch)
        self._batches.shorten()
        self.book.shorten()
        self._note(batch, max((int(d["delivery"]) for d in deliveries), default=0))
        self._sound = True
        return batch

    def read(self, batches: Iterable[TapeBatch]) -> pa.Table:
        """The records of some batches, in tape order."""
        pieces = [self._piece(number) for batch in batches for number in batch.pieces]
        tables = [_read(piece) for piece in pieces]
        if any("line" in table.column_names for table in tables):
            # Beside records with more columns every record has its line, as on the tape.
            tables = [
                table if "line" in table.column_names else _read(piece, with_line=True)
                for piece, table in zip(pieces, tables, strict=True)
            ]
        return pa.concat_tables(tables, promote_options="default").combine_chunks()

    def find(self, places: Sequence[tuple[int, int]]) -> pa.Table:
        """Single records by part and place, in that order, wherever compaction has put them."""
        wanted = pa.table(
            {"p": [part for part, _ in places], "a": [at for _, at in places]},
            schema=pa.schema([("p", pa.int64()), ("a", pa.int64())]),
        )
        leaf = FILE_LEAF if self.book.has("path") else TAPE_LEAF
        leaf = MESSAGE_LEAF if self.book.has("topic") else leaf
        leaf = pa.schema([field for field in leaf if field.name != "ordinal"])
        columns = ", ".join(f'tape."{name}"' for name in leaf.names)
        with connect() as connection:
            register_tape(connection, "tape", self.book.folder)
            connection.register("wanted", wanted)
            rows = connection.sql(
                f"select {columns} from tape join wanted on part = p and tape.at = a "
                "order by part, tape.at"
            ).to_arrow_table()
        return rows.select(leaf.names).cast(leaf)

    def deliveries(self) -> Iterator[dict[str, Any]]:
        """What every batch holds of which delivery, from the first on."""
        for row in self._rows(0):
            yield from json.loads(row["deliveries"])

    def since(self, number: int) -> list[TapeBatch]:
        """The batches behind a number."""
        return [_tape_batch(row) for row in self._rows(number + 1)]

    def release(self, batch: TapeBatch) -> None:
        """Spark has committed the batch: the names it watched can go."""
        for number in batch.pieces:
            (self._accepted / f"{number:012}.parquet").unlink(missing_ok=True)

    def ahead(self) -> tuple[int, int, datetime | None]:
        """Pieces and records that are accepted and not on the tape yet, and since when."""
        waiting = []
        for name in os.listdir(self._accepted) if self._accepted.exists() else []:
            stem = name.removesuffix(".parquet")
            if stem.isdigit() and int(stem) not in self._listed:
                waiting.append(int(stem))
        records, oldest = 0, None
        for number in sorted(waiting)[:MOST_COUNTED_AHEAD]:
            try:
                path = self._accepted / f"{number:012}.parquet"
                records += describe(path).records
                oldest = oldest or datetime.fromtimestamp(path.stat().st_mtime, UTC)
            except FileNotFoundError:
                continue  # it went onto the tape meanwhile
        return len(waiting), records, oldest

    def tidy(self, settings: HousekeepingSettings, flown: bool) -> None:
        """Compact the tape, unless the flow still needs its pieces by their names."""
        with self._alone:
            tidy(self._batches, settings)
            tidy(self.book, settings, flown)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is written meanwhile."""
        with self._alone:
            yield

    def _recover(self) -> None:
        self.last_batch = 0
        self.last_delivery = 0
        self.records = 0
        self._listed = PieceSet()
        rows = self._rows(0)
        for row in rows:
            last = max((int(d["delivery"]) for d in json.loads(row["deliveries"])), default=0)
            self._note(_tape_batch(row), last)
        if rows:
            self._finish(_tape_batch(rows[-1]))
        self._sound = True  # what is in memory agrees with what is on disk

    def _rows(self, since: int) -> list[dict[str, Any]]:
        columns = 'batch, "at", pieces, records, bytes, deliveries'
        return sorted(rows_of(self._batches.folder, columns, since), key=lambda row: row["batch"])

    def _finish(self, batch: TapeBatch) -> None:
        """Link and add the files of a decided batch; doing it again changes nothing."""
        if self.book.holds(batch.number):
            return
        staged = []
        for number in batch.pieces:
            target = self._piece(number)
            if not target.exists():
                self._link(number, target)
            metadata = pq.read_metadata(target)
            records = metadata.num_rows
            if metadata.num_columns > len(PIECE_SCHEMA):
                self._widen(metadata.num_columns)
            size = target.stat().st_size
            staged.append(
                StagedFile(
                    table=self.source, name=target.name, rows=records, size=size, batch=batch.number
                )
            )
        sync(self.book.folder)
        self.book.add(staged, batch.number)

    def _widen(self, columns: int) -> None:
        """The first piece of its kind makes room for what comes with a message, or for files."""
        more = FILE if columns == len(PIECE_SCHEMA) + len(FILE) else MESSAGE
        if not self.book.has(more.names[-1]):
            self.book.widen(more)

    def _link(self, number: int, target: Path) -> None:
        piece = self._accepted / target.name
        try:
            os.link(piece, target)
        except FileNotFoundError:
            raise OperationError(
                f"piece {number} of '{self.source}' is on the tape, but its file {piece} is "
                "missing. Restore it from a backup, or send its input file again."
            ) from None

    def _piece(self, number: int) -> Path:
        return self.book.folder / f"{number:012}.parquet"

    def _note(self, batch: TapeBatch, last_delivery: int) -> None:
        self.last_batch = batch.number
        self.records += batch.records
        self.last_delivery = max(self.last_delivery, last_delivery)
        self._listed.add(batch.pieces)


class PieceSet:
    """Piece numbers on the tape: all through one number, and a few ahead of it."""

    def __init__(self) -> None:
        self.through = 0
        self._ahead: set[int] = set()

    def add(self, numbers: Iterable[int]) -> None:
        self._ahead.update(numbers)
        while self.through + 1 in self._ahead:
            self.through += 1
            self._ahead.remove(self.through)

    def __contains__(self, number: int) -> bool:
        return number <= self.through or number in self._ahead


def _read(piece: Path, with_line: bool = False) -> pa.Table:
    """What a flow needs of a piece, with what came with messages, or the files of records."""
    file = pq.ParquetFile(piece)
    more = file.metadata.num_columns - len(PIECE_SCHEMA)
    plain = ("line",) if with_line else ()
    names = {0: plain, len(FILE): FILE_COLUMNS}.get(more, MESSAGE_COLUMNS)
    return file.read(columns=[*LEAF_COLUMNS, *names])


def _tape_batch(row: dict[str, Any]) -> TapeBatch:
    pieces = tuple(row["pieces"])
    proof = listed_hash(row)
    first = min((int(part["delivery"]) for part in json.loads(row["deliveries"])), default=0)
    return TapeBatch(row["batch"], row["at"], pieces, row["records"], row["bytes"], proof, first)
