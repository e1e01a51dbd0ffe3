"""The rows of a register as they were stored, by batch and position: what is taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.position import Position, position_of, row_column
from tapeline.books.reader import standing
from tapeline.errors import TapelineBug
from tapeline.store.duckdb import LAST_BATCH, arrow_of, connect, register_table

# Corrections mostly come soon: the rows of the latest batches are found without opening a file.
RECENT_ROWS = 50_000
WANTED = pa.schema(
    [
        ("s", pa.string()),
        ("p", pa.int64()),
        ("a", pa.int64()),
        ("n", pa.int32()),
        ("c", pa.string()),
    ]
)


@dataclass(frozen=True)
class Reversal:
    """A record that no longer counts: where it is, the batch that holds it, and why."""

    position: Position
    batch: int
    cause: str


class StandingRows:
    """The stored rows of one table's register."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
        row = row_column(schema.field("_position").type)
        self._same = (
            "r._position.source = w.s and r._position.part = w.p and r._position.at = w.a "
            f"and {row} = w.n"
        )
        self.until = LAST_BATCH  # what a build reads stands as it did at an earlier batch
        self._recent: deque[tuple[int, pa.Table]] = deque()
        # A redriven record is stored in a later batch than the one it came in.
        self._moved: dict[Position, int] = {}
        moved = arrow_of(folder, "_position, _batch", "_cause = 'redrive' and _sign > 0")
        if moved.num_rows:
            self._note_moved(moved.sort_by("_batch"))

    def remember(self, batch: int, register: pa.Table) -> None:
        """The batch is decided: its rows are stored."""
        redriven = pc.equal(register["_cause"], "redrive")
        self._note_moved(register.filter(pc.and_(redriven, pc.greater(register["_sign"], 0))))
        if register.num_rows > RECENT_ROWS:
            self._recent.clear()
            return
        self._recent.append((batch, register))
        while sum(rows.num_rows for _, rows in self._recent) > RECENT_ROWS:
            self._recent.popleft()

    def _note_moved(self, rows: pa.Table) -> None:
        places = rows["_position"].to_pylist()
        for where, batch in zip(places, rows["_batch"].to_pylist(), strict=True):
            self._moved[position_of(where)] = batch

    def standing(self, positions: Sequence[Position], verdict: str) -> pa.Table:
        """The rows of records that have a verdict now, wherever they are stored."""
        schema = self._schema.append(pa.field("_why", pa.string()))
        with connect() as connection:
            if not positions or not register_table(connection, "stored", self._folder):
                return schema.empty_table()
            columns = [*zip(*positions, strict=True), ["redrive"] * len(positions)]
            places = pa.table([*map(pa.array, columns)], schema=WANTED)
            connection.register("wanted", places)
            rows = connection.sql(
                f"select r.*, w.c as _why from ({standing('stored', self.until, verdict)}) r "
                f"join wanted w on {self._same} order by r._position, r._row"
            ).to_arrow_table()
        return rows.select(schema.names).cast(schema)

    def find(self, wanted: Sequence[Reversal]) -> pa.Table:
        """The rows that these records have now, each with the cause why it is taken back."""
        wanted = [replace(one, batch=self._moved.get(one.position, one.batch)) for one in wanted]
        schema = self._schema.append(pa.field("_why", pa.string()))
        if not wanted:
            return schema.empty_table()
        recent = dict(self._recent)
        found = []
        with connect() as connection:
            for batch in sorted({one.batch for one in wanted}):
                of_batch = [one for one in wanted if one.batch == batch]
                columns = [*zip(*(one.position for one in of_batch), strict=True)]
                causes = [one.cause for one in of_batch]
                places = pa.table([*map(pa.array, (*columns, causes))], schema=WANTED)
                connection.register("wanted", places)
                name = "recent" if batch in recent else "stored"
                if batch in recent:
                    connection.register(name, recent[batch])
                elif not register_table(connection, name, self._folder, (batch, batch)):
                    raise TapelineBug(f"{self._folder}: batch {batch} is gone")
                rows = connection.sql(
                    f"select r.*, w.c as _why from {name} r join wanted w on {self._same} "
                    f"where r._batch = {int(batch)} and r._sign > 0 order by r._position, r._row"
                ).to_arrow_table()
                found.append(rows.select(schema.names).cast(schema))
        return pa.concat_tables(found)
