"""The tape: every record exactly as it arrived, in numbered batches that decide.

Intake stages pieces: durable files that nobody reads yet. Rows of tape_batches, in one commit,
decide about all of them; then the pieces are hard-linked into the table and added under the last
row's number. After a crash, rows that the table lacks are finished, and staged pieces that no row
names are removed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tapeline.books.batch_limits import BatchLimits
from tapeline.books.layout import Layout
from tapeline.books.pieces import (
    PIECE_SCHEMA,
    DeliveryPart,
    PieceFacts,
    PiecePart,
    describe,
    write_piece,
)
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
from tapeline.books.tape_batches import (
    WHOLE,
    PieceSet,
    TapeBatch,
    TapeRow,
    divided,
    read_rows,
)
from tapeline.errors import OperationError
from tapeline.failpoints import hit
from tapeline.settings import HousekeepingSettings
from tapeline.store.decisions import DecidedTables, decide
from tapeline.store.delta import StagedFile, TableWriter
from tapeline.store.disk import sweep
from tapeline.store.duckdb import connect, register_tape
from tapeline.store.files import make_folder, sync
from tapeline.store.housekeeping import tidy
from tapeline.store.recovery import Recovery

# Where books of earlier versions have pieces that are not on the tape yet.
FORMER = "accepted"
LEAF_COLUMNS = [name for name in TAPE_LEAF.names if name != "ordinal"]


class Tape:
    """The writer's side of one source's tape. One thread stages and appends."""

    def __init__(self, layout: Layout, source: str, clock: Callable[[], datetime]) -> None:
        self.source = source
        self._clock = clock
        # Another source's thread may keep house while this one's commits.
        self._alone = threading.Lock()
        self.home = layout.intake(source)
        self._staged, self._former = self.home / "staged", self.home / FORMER
        make_folder(self._staged)
        self._ready: list[PieceFacts] = []
        self.on_append: Callable[[TapeBatch], None] = lambda _: None  # hears of every new batch
        self._batches = TableWriter(
            layout.tape_batches(source), TAPE_BATCHES, f"tape_batches/{source}"
        )
        self.book = TableWriter(layout.tape(source), PIECE_SCHEMA, f"tape/{source}")
        self._decided = DecidedTables({source: self.book}, "tape_added")
        self._recovery = Recovery(self._recover)
        self._recovery.ensure()

    @property
    def last_piece(self) -> int:
        return self._listed.highest

    def recover(self) -> list[TapeBatch]:
        """After an append that failed half-way: finish and return the batches that were decided."""
        if self._recovery.sound:
            return []
        with self._alone:
            before = self.last_batch
            self._batches.recover()
            self.book.recover()
            self._recovery.ensure()
        finished = self.since(before)
        for batch in finished:
            self.on_append(batch)
        return finished

    def stage(self, parts: Sequence[PiecePart], arrived_at: datetime) -> None:
        """Write the next piece of a group, unseen."""
        number = self.last_piece + len(self._ready) + 1
        path = self._staged / _name(number)
        self._ready.append(write_piece(path, number, arrived_at, parts))

    def discard(self) -> None:
        """Drop the staged group."""
        for piece in self._ready:
            (self._staged / _name(piece.piece)).unlink(missing_ok=True)
        self._ready = []

    def append(self, limits: BatchLimits = WHOLE) -> list[TapeBatch]:
        """Put the staged group on the tape: all of it or nothing, as one batch or several."""
        group, self._ready = self._ready, []
        if not group:
            return []
        with self._alone, self._recovery.step():
            sync(self._staged)
            batches = self._append(self._rows_for(group, limits))
        hit("tape_committed")
        for batch in batches:
            self.on_append(batch)
        return batches

    def adopt(self, limits: BatchLimits = WHOLE) -> list[TapeBatch]:
        """Take over the pieces that intake of an earlier version left beside the tape."""
        former = [p for p in sorted(self._former.glob("*.parquet")) if p.stem.isdigit()]
        fresh = [path for path in former if int(path.stem) not in self._listed]
        for path in fresh:
            target = self._staged / path.name
            target.unlink(missing_ok=True)
            os.link(path, target)
        self._ready = [describe(path) for path in fresh]
        return self.append(limits)

    def _rows_for(self, group: Sequence[PieceFacts], limits: BatchLimits) -> list[TapeRow]:
        sizes = ((self._staged / _name(piece.piece)).stat().st_size for piece in group)
        sized = zip(group, sizes, strict=True)
        return divided(sized, limits, self.last_batch + 1, self._clock())

    def _append(self, rows: Sequence[TapeRow]) -> list[TapeBatch]:
        batches = [row.decided for row in rows]
        decide(self._batches, [(row.batch, row.stored) for row in rows], batches[-1].number)
        hit("tape_decided")
        self._finish(batches)
        self._batches.shorten()
        self.book.shorten()
        for batch in batches:
            self._note(batch)
        return batches

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

    def deliveries(self) -> Iterator[DeliveryPart]:
        """What every batch holds of which delivery, from the first on."""
        for batch in self.since(0):
            yield from batch.deliveries

    def since(self, number: int) -> list[TapeBatch]:
        """The batches after a number."""
        return [row.decided for row in read_rows(self._batches.folder, number + 1)]

    def tidy(self, settings: HousekeepingSettings, booked: int) -> None:
        """Compact the tape, unless the flow needs pieces after batch `booked` by their names."""
        with self._alone:
            tidy(self._batches, settings)
            tidy(self.book, settings, self.last_batch <= booked)

    @contextmanager
    def still(self) -> Iterator[None]:
        """No writes while this context is open."""
        with self._alone:
            yield

    def _recover(self) -> None:
        self.last_batch = 0
        self.last_at: datetime | None = None  # when something last came
        self.last_delivery = 0
        self.records = 0
        self._listed = PieceSet()
        batches = self.since(-1)
        for batch in batches:
            self._note(batch)
        unfinished = takewhile(lambda one: self._decided.lack(one.number), reversed(batches))
        self._finish(list(unfinished)[::-1])
        self._ready = []
        for path in self._staged.iterdir():
            sweep(path)

    def _finish(self, batches: Sequence[TapeBatch]) -> None:
        """Link and add the files of decided batches; doing it again changes nothing."""
        files = [
            self._linked(number, batch.number)
            for batch in batches
            for number in batch.pieces
            if self._decided.lack(batch.number)
        ]
        if files:
            sync(self.book.folder)
            self._decided.finish(batches[-1].number, {self.source: files})
        for batch in batches:
            for number in batch.pieces:
                (self._staged / _name(number)).unlink(missing_ok=True)

    def _linked(self, number: int, batch: int) -> StagedFile:
        """The file of a piece, in the table's folder."""
        target = self._piece(number)
        if not target.exists():
            self._link(number, target)
        metadata = pq.read_metadata(target)
        if metadata.num_columns > len(PIECE_SCHEMA):
            self._widen(metadata.num_columns)
        size, rows = target.stat().st_size, metadata.num_rows
        return StagedFile(table=self.source, name=target.name, rows=rows, size=size, batch=batch)

    def _widen(self, columns: int) -> None:
        """The first piece of its kind makes room for what comes with a message, or for files."""
        more = FILE if columns == len(PIECE_SCHEMA) + len(FILE) else MESSAGE
        if not self.book.has(more.names[-1]):
            self.book.widen(more)

    def _link(self, number: int, target: Path) -> None:
        for folder in (self._staged, self._former):
            piece = folder / target.name
            if piece.exists():
                os.link(piece, target)
                return
        raise OperationError(
            f"piece {number} of '{self.source}' is on the tape, but its file "
            f"{self._staged / target.name} is missing. Restore it from a backup, or send its input "
            "file again."
        )

    def _piece(self, number: int) -> Path:
        return self.book.folder / _name(number)

    def _note(self, batch: TapeBatch) -> None:
        self.last_batch = batch.number
        self.last_at = batch.at
        self.records += batch.records
        self.last_delivery = max(self.last_delivery, batch.last_delivery)
        self._listed.add(batch.pieces)


def _read(piece: Path, with_line: bool = False) -> pa.Table:
    """What a flow needs of a piece, with what came with messages, or the files of records."""
    file = pq.ParquetFile(piece)
    more = file.metadata.num_columns - len(PIECE_SCHEMA)
    plain = ("line",) if with_line else ()
    names = {0: plain, len(FILE): FILE_COLUMNS}.get(more, MESSAGE_COLUMNS)
    return file.read(columns=[*LEAF_COLUMNS, *names])


def _name(number: int) -> str:
    return f"{number:012}.parquet"
