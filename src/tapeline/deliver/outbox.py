"""The outbox of a sink: what a published batch sends, read from the books themselves.

Registers and journals are append-only and numbered by batch, so the books are the outbox: reading
a batch again gives the same rows in the same order, whatever compaction did to its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from tapeline.books import Books, Layout
from tapeline.books.arrow_rows import as_rows
from tapeline.books.changes import changes_of, history_of
from tapeline.books.commits import read_commits
from tapeline.books.generations import view_register
from tapeline.books.position import has_rows
from tapeline.declare import Sink
from tapeline.declare.destination import SinkBatch, SinkPosition
from tapeline.deliver.alerts import events, shape
from tapeline.deliver.view_changes import ViewChanges
from tapeline.errors import OperationError
from tapeline.plan import Plan
from tapeline.show import plain
from tapeline.store.duckdb import connect

Row = dict[str, Any]
BATCHES_PER_READ, ROWS_PER_READ = 200, 20_000
PLACE = ("r._position.source", "r._position.part", "r._position.at")
# What the books keep of a register for themselves.
UNSENT = ("_raw", "_content_hash", "_key_hash", "_row", "_verdict", "_reasons", "_sequence")


class Outbox:
    """What the published batches of some books send to one sink."""

    def __init__(self, plan: Plan, layout: Layout, sink: Sink) -> None:
        self._layout = layout
        self._sink = sink
        self._alert = plan.pipeline.alerts.get(sink.reads)
        self._reads = self._alert.reads if self._alert else sink.reads
        self._summary = plan.pipeline.summaries.get(self._reads)
        view = plan.pipeline.views.get(self._reads)
        self._view = ViewChanges(Books(plan, layout.home), view) if view else None

    def after(self, batch: int, published: int, rows: int) -> tuple[SinkPosition, list[SinkBatch]]:
        """What comes after a batch: at least one batch, and about this many rows of the books.

        Also the place that is reached: batches that send nothing are not among the outgoing.
        """
        most = 1 if self._view else BATCHES_PER_READ  # a view is compared batch by batch
        places = self._places(batch + 1, min(published, batch + most), rows)
        if not places:
            raise OperationError(
                f"the books lack batch {batch + 1}, which sink {self._sink.name} sends next. "
                "Restore them from a backup."
            )
        last = max(places)
        schema, came = self._read(batch + 1, last)
        if self._alert:
            schema = shape(schema)
        outgoing = []
        for number, of_batch in groupby(came, key=lambda row: int(row["_batch"])):
            sent = self._send(list(of_batch))
            if sent:
                outgoing.append(SinkBatch(SinkPosition(number, places[number]), sent, schema))
        return SinkPosition(last, places[last]), outgoing

    def all_rows(self, published: int, reached: int = 0) -> list[Row]:
        """Everything that is sent after one batch, through another."""
        sent: list[Row] = []
        while reached < published:
            place, outgoing = self.after(reached, published, ROWS_PER_READ)
            reached = place.batch
            sent += [row for one in outgoing for row in one.rows]
        return sent

    def events_at(self, batch: int) -> list[Row]:
        """The alerts on a view that are active at a batch, as if it were the first one."""
        assert self._alert is not None
        assert self._view is not None
        return list(events(self._alert, list(self._view.between(0, batch)[1])))

    def hash_of(self, batch: int) -> str | None:
        """The hash of a published batch; None when these books have none of that number."""
        return self._hashes(batch, batch).get(batch)

    def _hashes(self, first: int, last: int) -> dict[int, str]:
        rows = read_commits(self._layout.commits, first, last)
        return {row.batch: row.hash for row in rows if row.publishes}

    def _places(self, first: int, last: int, limit: int) -> dict[int, str]:
        """The batches that are read together, each with its hash."""
        places: dict[int, str] = {}
        count = 0
        for row in read_commits(self._layout.commits, first, last):
            if not row.decides:
                continue
            counts = row.commit.tables.get(self._reads)
            count += counts.rows if counts else 0
            if places and count > limit:
                break
            places[row.batch] = row.hash
        return places

    def _send(self, rows: list[Row]) -> list[Row]:
        """The user's function over a batch; what it gives must be dictionaries."""
        if self._alert:
            rows = list(events(self._alert, rows))
        sent = list(self._sink.function(rows) or ()) if rows else []
        wrong = next((one for one in sent if not isinstance(one, dict)), None)
        if wrong is not None:
            raise OperationError(
                f"{self._sink.where}: {self._sink.name}() returned a {type(wrong).__name__}. "
                "Return a list of dictionaries, one per message."
            )
        return sent

    def _read(self, first: int, last: int) -> tuple[pa.Schema, Iterator[Row]]:
        if self._view:
            return self._view.of_batch(last)
        return self._changes(first, last) if self._summary else self._rows(first, last)

    def _rows(self, first: int, last: int) -> tuple[pa.Schema, Iterator[Row]]:
        """Kept rows that came (`_sign` 1) or were taken back (-1), in the order of the tape."""
        with connect() as connection:
            if not view_register(
                connection, "r", history_of(self._layout, first, last), self._reads
            ):
                return pa.schema([]), iter(())
            order = ", ".join([*PLACE, *(["r._position.row"] if has_rows(connection, "r") else [])])
            place = f"concat_ws('/', {order})"
            found = connection.sql(
                f"select * exclude ({', '.join(UNSENT)}) replace ({place} as _position, "
                f"coalesce(_key, {place}) as _key) from r where _verdict = 'kept' "
                f"and _batch between {first} and {last} order by _batch, {order}, _row, _sign"
            ).to_arrow_table()
        return found.schema, as_rows(found)

    def _changes(self, first: int, last: int) -> tuple[pa.Schema, Iterator[Row]]:
        """Numbers that changed, each with what it was and what it is, in the order of the key."""
        assert self._summary is not None
        key = self._summary.key
        schema, rows = changes_of(history_of(self._layout, first, last), self._summary)
        return schema, (row | {"_key": "/".join(str(plain(row[k])) for k in key)} for row in rows)
