"""The rows of a query as records: JSON lines that lose no digit, cancelled keys among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tapeline.books.query_position import QueryPosition
from tapeline.books.tape import Tape
from tapeline.connect.query import Query
from tapeline.connect.running_query import QueryBatch
from tapeline.declare.query_columns import DELETES, NUMBER
from tapeline.formats.limits import IntakeLimits
from tapeline.formats.parquet_rows import json_of

ROWS_AT_ONCE = 10_000


class QueryRows:
    """Writes batches as records. Of a complete result it knows the keys of the one before."""

    def __init__(self, query: Query) -> None:
        self._versions = query.keeps_versions
        self._key = tuple(query.key)
        self._before: set[str] = set()
        self._now: set[str] = set()

    def recover(self, tape: Tape, last: QueryPosition | None) -> None:
        """Learn the keys of the last result from the tape."""
        self._before = set()
        if not self._key or last is None:
            return
        text = last.text()
        batches = [
            batch
            for batch in tape.since(0)
            if any(part.position == text for part in batch.deliveries)
        ]
        for raw in tape.read(batches)["raw"].to_pylist() if batches else ():
            row = json.loads(raw)
            if not row.get(DELETES.name):
                self._before.add(self._key_of(row))

    def pieces(self, batch: QueryBatch, number: int, limits: IntakeLimits) -> Iterator[list[bytes]]:
        """The records of a batch, as many at a time as one piece may hold."""
        some: list[bytes] = []
        size = 0
        for record in self._records(batch, number):
            length = min(len(record), limits.record_bytes)
            full = len(some) >= limits.piece_records
            if some and (full or size + length > limits.bytes_per_piece):
                yield some
                some, size = [], 0
            some.append(record)
            size += length
        if some or batch.dropped:
            yield some

    def taken(self) -> None:
        """The batch is on the tape."""
        if self._key:
            self._before = self._now

    def _records(self, batch: QueryBatch, number: int) -> Iterator[bytes]:
        self._now = set()
        ending = f',"{NUMBER.name}":{number}}}'.encode()
        for some in batch.rows.to_batches(max_chunksize=ROWS_AT_ONCE):
            for record in json_of(some):
                if self._key:
                    self._now.add(self._key_of(json.loads(record)))
                yield record[:-1] + ending if self._versions else record
        for gone in sorted(self._before - self._now) if self._key else ():
            key = dict(zip(self._key, json.loads(gone), strict=True))
            yield _line({**key, NUMBER.name: number, DELETES.name: True})

    def _key_of(self, row: dict[str, Any]) -> str:
        return json.dumps([row[name] for name in self._key], ensure_ascii=False)


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
