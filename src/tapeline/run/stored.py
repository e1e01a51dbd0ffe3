"""The rows of a register as they were stored, by batch and position: what is taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tapeline.books.query import connect, register_table
from tapeline.errors import TapelineBug

# Corrections mostly come soon: the rows of the latest batches are found without opening a file.
RECENT_ROWS = 50_000
WANTED = pa.schema([("s", pa.string()), ("p", pa.int64()), ("a", pa.int64()), ("c", pa.string())])


@dataclass(frozen=True)
class TakenBack:
    """A record that no longer counts: where it is, the batch that holds it, and why."""

    position: tuple[str, int, int]
    batch: int
    cause: str


class Stored:
    """The stored rows of one table's register."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
        self._recent: deque[tuple[int, pa.Table]] = deque()

    def remember(self, batch: int, register: pa.Table) -> None:
        """The batch is decided: its rows are stored."""
        if register.num_rows > RECENT_ROWS:
            self._recent.clear()
            return
        self._recent.append((batch, register))
        while sum(rows.num_rows for _, rows in self._recent) > RECENT_ROWS:
            self._recent.popleft()

    def find(self, wanted: Sequence[TakenBack]) -> pa.Table:
        """The rows that these records have now, each with the cause why it is taken back."""
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
                    f"select {name}.*, c as _why from {name} join wanted on _position.source = s "
                    f"and _position.part = p and _position.at = a where _batch = {int(batch)} "
                    "and _sign > 0 order by _position, _row"
                ).to_arrow_table()
                found.append(rows.select(schema.names).cast(schema))
        return pa.concat_tables(found)
