"""Packing deliveries into pieces: small ones share a piece, a large one fills several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from tapeline.books.pieces import DeliveryPart, PiecePart
from tapeline.books.tape import Tape
from tapeline.formats.limits import IntakeLimits
from tapeline.formats.lines import Lines
from tapeline.intake.archive import DeliveryNote
from tapeline.intake.delivery_reader import DeliveryReader


class PieceBuffer:
    """Lines gathered in memory, with their totals."""

    def __init__(self) -> None:
        self.lines: list[Lines] = []
        self.records = 0
        self.size = 0

    def add(self, lines: Lines) -> None:
        self.lines.append(lines)
        self.records += len(lines)
        self.size += len(lines.values)

    def over(self, limits: IntakeLimits) -> bool:
        """Whether this is more than one piece may hold."""
        return self.records > limits.piece_records or self.size > limits.bytes_per_piece

    def cut(self, limits: IntakeLimits) -> PieceBuffer:
        """Take a full piece off the front."""
        full, rest = PieceBuffer(), PieceBuffer()
        for lines in self.lines:
            fits = 0
            if not rest.lines:
                records = limits.piece_records - full.records
                fits = lines.fitting(records, limits.bytes_per_piece - full.size)
            if fits:
                full.add(lines.between(0, fits))
            if fits < len(lines):
                rest.add(lines.between(fits, len(lines)))
        self.lines, self.records, self.size = rest.lines, rest.records, rest.size
        return full


class Packer:
    """Turns deliveries into pieces on the tape, in order."""

    def __init__(
        self,
        tape: Tape,
        limits: IntakeLimits,
        clock: Callable[[], datetime],
        append: Callable[[], None],
    ) -> None:
        self._tape = tape
        self._limits = limits
        self._clock = clock
        self._append = append
        self._shared: list[PiecePart] = []
        self._records = 0
        self._size = 0

    def add(self, note: DeliveryNote, reading: DeliveryReader) -> None:
        """Pack one delivery. Raises UnreadableFileError, with nothing of it packed."""
        heap, large = PieceBuffer(), False
        try:
            for lines in reading:
                heap.add(lines)
                while heap.over(self._limits):
                    if not large:
                        self.flush()
                        large = True
                    self._stage([_part(note, reading, heap.cut(self._limits), complete=False)])
        except BaseException:
            self._tape.discard()
            raise
        part = _part(note, reading, heap, complete=True)
        if large:
            self._stage([part])
            self._append()
        else:
            self._share(part, heap)

    def flush(self) -> None:
        """Put the piece that small deliveries share on the tape."""
        if self._shared:
            parts, self._shared = self._shared, []
            self._records = self._size = 0
            self._stage(parts)
            self._append()

    def forget(self) -> None:
        """Drop what is not on the tape."""
        self._shared, self._records, self._size = [], 0, 0

    def _share(self, part: PiecePart, heap: PieceBuffer) -> None:
        records, size = self._records + heap.records, self._size + heap.size
        if records > self._limits.piece_records or size > self._limits.bytes_per_piece:
            self.flush()
            records, size = heap.records, heap.size
        self._shared.append(part)
        self._records, self._size = records, size

    def _stage(self, parts: Sequence[PiecePart]) -> None:
        self._tape.stage(parts, self._clock())


def _part(
    note: DeliveryNote, reading: DeliveryReader, heap: PieceBuffer, complete: bool
) -> PiecePart:
    facts = DeliveryPart(
        delivery=note.delivery,
        name=note.name,
        sha256=reading.sha256 if complete else None,
        bytes=note.size,
        records=heap.records,
        first_line=int(heap.lines[0].numbers[0]) if heap.lines else 0,
        last_line=int(heap.lines[-1].numbers[-1]) if heap.lines else 0,
        complete=complete,
    )
    return PiecePart(facts, tuple(heap.lines), reading.header)
