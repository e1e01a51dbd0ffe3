"""The intake of a source that the user wrote.

Records are acknowledged only after a row of the tape has decided about them. The row keeps the
source's position, so that a source which can go on at one is taken exactly once.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

import numpy as np

from tapeline.books.pieces import DeliveryPart, PiecePart
from tapeline.books.tape import Tape
from tapeline.declare.source import Polled, Source
from tapeline.errors import OperationError, TapelineError
from tapeline.formats.limits import IntakeLimits, too_long
from tapeline.formats.lines import Lines
from tapeline.intake.source_intake import SourceIntake

POLL_SECONDS = 0.2
ANSWER_SECONDS = 2.0


class OwnIntake(SourceIntake):
    """Polls one source and puts what came on its tape."""

    answer_seconds = ANSWER_SECONDS

    def __init__(
        self, source: Source, tape: Tape, limits: IntakeLimits, clock: Callable[[], datetime]
    ) -> None:
        self._source = source
        self._tape = tape
        self._limits = limits
        self._clock = clock
        self._turn = threading.Lock()
        self._open = False
        self._position = ""
        self._heard = time.monotonic()
        self.rounds = 0
        self.has_read = False

    def recover(self) -> None:
        """Learn from the tape where to go on. The source is opened by the first take."""
        for part in self._tape.deliveries():
            self._position = part.position or self._position

    def take(self) -> int:
        with self._turn:
            before = self._tape.last_piece
            try:
                self._take()
            except TapelineError:
                self._close()
                raise
            except Exception as error:
                self._close()
                raise OperationError(
                    f"SOURCE_DOWN: {self._source.path}: {type(error).__name__}: {error}. Tapeline "
                    "opens it again and continues after what is on the tape."
                ) from error
            self.rounds += 1
            return self._tape.last_piece - before

    def _take(self) -> None:
        if not self._open:
            self._tape.discard()
            for batch in self._tape.recover():
                for part in batch.deliveries:
                    self._position = part.position or self._position
            self._source.open(self._position)
            self._open = True
            self._heard = time.monotonic()
            if self._position:  # a crash may have come before it was told
                self._source.acknowledge(self._position)
        polled = self._source.poll(self._limits.piece_records, POLL_SECONDS)
        self.has_read = True
        if polled.records:
            self._heard = time.monotonic()
            first = self._tape.last_delivery + 1
            for delivery, some in enumerate(self._by_size(list(polled.records)), first):
                self._stage(delivery, some, polled)
            self._tape.append(self._limits.tape_batch)
            self._position = polled.position or self._position
            self._source.acknowledge(polled.position)

    def _by_size(self, records: list[bytes]) -> Iterator[list[bytes]]:
        """As many records as one piece may hold at a time."""
        some: list[bytes] = []
        size = 0
        for record in records:
            length = min(len(record), self._limits.record_bytes)
            full = len(some) >= self._limits.piece_records
            if some and (full or size + length > self._limits.bytes_per_piece):
                yield some
                some, size = [], 0
            some.append(record)
            size += length
        yield some

    def _stage(self, delivery: int, records: list[bytes], polled: Polled) -> None:
        """Write a piece. The group is decided as one, so each may have the last position."""
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
            name=self._source.path,
            sha256=hashlib.sha256(whole).hexdigest(),
            bytes=len(whole),
            records=len(kept),
            first_line=1,
            last_line=len(kept),
            complete=True,
            position=polled.position or None,
        )
        numbers = np.arange(1, len(kept) + 1, dtype=np.int64)
        lines = Lines(whole, lengths, numbers, faults)
        self._tape.stage([PiecePart(facts, (lines,), None)], self._clock())

    def waiting(self) -> tuple[int, int]:
        return (self._source.waiting() if self._open else 0), 0

    def look_again(self) -> bool:
        """Whether the source was heard of a moment ago: it may still be answering."""
        return time.monotonic() - self._heard < ANSWER_SECONDS

    @contextmanager
    def still(self) -> Iterator[None]:
        with self._turn:
            yield

    def close(self) -> None:
        with self._turn:
            self._close()

    def _close(self) -> None:
        self._open = False
        with suppress(Exception):  # what matters is on the tape
            self._source.close()
