"""A tape for reading alone: its records by their batches, wherever compaction has put them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tapeline.books.layout import Layout
from tapeline.books.schemas import FILE_LEAF, MESSAGE_LEAF, TAPE_LEAF
from tapeline.books.tape_batches import TapeBatch, read_rows
from tapeline.store.duckdb import Connection, connect, register_tape


class StoredTape:
    """One source's tape, which another process may be writing."""

    def __init__(self, layout: Layout, source: str) -> None:
        self._layout = layout
        self._source = source
        self._batches: list[TapeBatch] = []
        self._records = TAPE_LEAF.empty_table()
        self._parts = self._records["part"].to_numpy()

    def load(self, first: int, last: int) -> None:
        """Hold the batches between two numbers in memory: they are read one after the other."""
        rows = read_rows(self._layout.tape_batches(self._source), first, last)
        self._batches = [row.decided for row in rows]
        pieces = sorted(number for batch in self._batches for number in batch.pieces)
        wanted = pa.table({"p": pa.array(pieces, pa.int64())})
        self._records = self._rows(wanted, "part = p")
        self._parts = self._records["part"].to_numpy()

    def batches(self, first: int, last: int) -> list[TapeBatch]:
        """The batches between two numbers, both included, of those that were loaded."""
        return [one for one in self._batches if first <= one.number <= last]

    def read(self, batches: Iterable[TapeBatch]) -> pa.Table:
        """The records of some loaded batches, in tape order."""
        found = [self._records.slice(0, 0)]
        for number in sorted(number for batch in batches for number in batch.pieces):
            low, high = np.searchsorted(self._parts, [number, number + 1])
            found.append(self._records.slice(low, high - low))
        return pa.concat_tables(found).combine_chunks()

    def find(self, places: Sequence[tuple[int, int]]) -> pa.Table:
        """Single records by part and place, in that order."""
        parts, ats = [part for part, _ in places], [at for _, at in places]
        wanted = pa.table({"p": pa.array(parts, pa.int64()), "a": pa.array(ats, pa.int64())})
        return self._rows(wanted, "part = p and tape.at = a")

    def _rows(self, wanted: pa.Table, where: str) -> pa.Table:
        with connect() as connection:
            leaf = TAPE_LEAF
            if register_tape(connection, "tape", self._layout.tape(self._source)):
                leaf = _leaf(connection)
            leaf = pa.schema([field for field in leaf if field.name != "ordinal"])
            parts = wanted["p"].to_pylist()
            if not parts:
                return leaf.empty_table()
            columns = ", ".join(f'tape."{name}"' for name in leaf.names)
            connection.register("wanted", wanted)
            rows = connection.sql(
                f"select {columns} from tape join wanted on {where} "
                f"where part between {min(parts)} and {max(parts)} order by part, tape.at"
            ).to_arrow_table()
        return rows.select(leaf.names).cast(leaf).combine_chunks()


def _leaf(connection: Connection) -> pa.Schema:
    """What the tape has of its records: their files, their messages, or neither."""
    rows = connection.execute("select column_name from (describe tape)").fetchall()
    names = {name for (name,) in rows}
    if "topic" in names:
        return MESSAGE_LEAF
    return FILE_LEAF if "path" in names else TAPE_LEAF
