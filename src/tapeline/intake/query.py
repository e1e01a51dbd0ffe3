"""The intake of a Structured Streaming query.

The query offers a batch and waits. When its rows are on the tape, Spark commits the batch. A batch
that comes again after a crash has the query and batch id of a row on the tape, and is passed over.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import numpy as np

from tapeline.books.pieces import DeliveryPart, PiecePart
from tapeline.books.query_position import QueryPosition, positions
from tapeline.books.status import QueryStatus
from tapeline.books.tape import Tape
from tapeline.connect.query import Query
from tapeline.connect.running_query import Queries, QueryBatch, QueryStart, RunningQuery
from tapeline.failpoints import hit
from tapeline.formats.limits import IntakeLimits, too_long
from tapeline.formats.lines import Lines
from tapeline.intake.checkpoint import Checkpoint
from tapeline.intake.query_rows import QueryRows
from tapeline.intake.source_intake import SourceIntake

POLL_SECONDS = 0.05


class QueryIntake(SourceIntake):
    """Puts the batches of one query on its tape."""

    def __init__(
        self,
        query: Query,
        tape: Tape,
        queries: Queries,
        checkpoint: Checkpoint,
        limits: IntakeLimits,
        clock: Callable[[], datetime],
    ) -> None:
        self._query = query
        self._tape = tape
        self._queries = queries
        self._checkpoint = checkpoint
        self._limits = limits
        self._clock = clock
        self._turn = threading.Lock()
        self._running: RunningQuery | None = None
        self._rows = QueryRows(query)
        self._last: QueryPosition | None = None
        self._dropped = 0
        self._finished = False
        self.start_over = False  # whether a lost checkpoint may be replaced by a new one
        self.rounds = 0

    def _recover(self) -> None:
        """Learn from the tape which batches it has."""
        self._last, self._dropped = None, 0
        for position in positions(self._tape.deliveries()):
            self._last = position
            self._dropped += position.dropped
        self._rows.recover(self._tape, self._last)

    def take(self) -> int:
        with self._turn:
            if self._running is None and self._finished:
                self.rounds += 1
                return 0
            before = self._tape.last_piece
            try:
                self._take()
            except BaseException:
                self._stop()
                raise
            return self._tape.last_piece - before

    def _take(self) -> None:
        if self._running is None:
            self._running = self._start()
        batch = self._running.next(POLL_SECONDS)
        if batch is not None:
            self._put(batch)
            self._running.done()
        elif self._running.ended:
            self._stop()
            self._finished = True

    def _start(self) -> RunningQuery:
        self._tape.discard()
        self._tape.recover()
        self._recover()
        if not self._queries.replays(self._query):
            self._checkpoint.begin()
        else:
            self._find_checkpoint()
        start = QueryStart(self._tape.source, self._query, self._checkpoint.folder, self.to_the_end)
        running = self._queries.start(start)
        self._checkpoint.note(running.id)
        return running

    def _find_checkpoint(self) -> None:
        """Refuse a checkpoint that does not go with the tape, unless the query may start over."""
        state = self._checkpoint.state(self._last)
        if state == "new":
            self._checkpoint.begin()
        elif state != "ok":
            if state == "foreign" or not self.start_over:
                raise self._checkpoint.error(state, self._last)
            self._checkpoint.begin()

    def _put(self, batch: QueryBatch) -> None:
        """Put a batch on the tape, unless it is there."""
        last = self._last
        if last is not None and last.query == batch.query and batch.number <= last.batch:
            return
        number = last.number + 1 if last else 0
        instead_of = last.query if last and last.query != batch.query else None
        position = QueryPosition(batch.query, batch.number, number, batch.dropped, instead_of)
        hit("query_batch")
        first = self._tape.last_delivery + 1
        for delivery, lines in enumerate(self._rows.pieces(batch, number, self._limits), first):
            self._stage(delivery, lines, position)
        self._tape.append(self._limits.tape_batch)
        self._last = position
        self._dropped += batch.dropped
        self._rows.taken()

    def _stage(self, delivery: int, records: list[bytes], position: QueryPosition) -> None:
        """Write a piece. The group is decided as one, so each has the same position."""
        limit = self._limits.record_bytes
        faults = {
            index: too_long(len(record), limit)
            for index, record in enumerate(records)
            if len(record) > limit
        }
        kept = [record[:limit] for record in records]
        whole = b"".join(kept)
        lengths = np.array([len(record) for record in kept], dtype=np.int64)
        facts = DeliveryPart(
            delivery=delivery,
            name=f"{self._query.name}() batch {position.batch}",
            sha256=hashlib.sha256(whole).hexdigest(),
            bytes=len(whole),
            records=len(kept),
            first_line=1,
            last_line=len(kept),
            complete=True,
            position=position.text(),
        )
        numbers = np.arange(1, len(kept) + 1, dtype=np.int64)
        self._tape.stage([PiecePart(facts, (Lines(whole, lengths, numbers, faults),), None)],
                         self._clock())  # fmt: skip

    def waiting(self) -> tuple[int, int]:
        """A query that runs to its end has something to give until then; nobody knows how much."""
        return int(self.to_the_end and not self._finished), 0

    @property
    def query(self) -> QueryStatus | None:
        if self._last is None:
            return None
        return QueryStatus(
            query=self._last.query, batch=self._last.batch, dropped_by_watermark=self._dropped
        )

    @contextmanager
    def still(self) -> Iterator[None]:
        """No writes: the query is stopped, and the next take starts it again."""
        with self._turn:
            if self._running is not None and self._queries.replays(self._query):
                self._stop()
            yield

    def settle(self) -> None:
        """Take the batch that is offered, if its query could not offer it again."""
        with self._turn:
            running = self._running
            if running is None or self._queries.replays(self._query):
                return
            batch = running.next(0.0)
            if batch is not None:
                self._put(batch)
                running.done()

    def close(self) -> None:
        with self._turn:
            self._stop()

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.stop()
