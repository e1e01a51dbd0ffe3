"""Packing deliveries into pieces: small ones share a piece, a large one fills several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from tapeline.books.pieces import DeliveryPart, FileOrigin, PiecePart
from tapeline.books.tape import Tape
from tapeline.formats.limits import IntakeLimits
from tapeline.formats.lines import Lines
from tapeline.intake.archive import DeliveryNote
from tapeline.intake.delivery_reader import DeliveryReader, Origin


class PieceBuffer:
    """Lines gathered in memory, with their totals."""

    def __init__(self) -> None:
        self.lines: list[tuple[Origin, Lines]] = []
        self.records = 0
        self.size = 0

    def add(self, origin: Origin, lines: Lines) -> None:
        self.lines.append((origin, lines))
        self.records += len(lines)
        self.size += len(lines.values)

    def over(self, limits: IntakeLimits) -> bool:
        """Whether this is more than one piece may hold."""
        return self.records > limits.piece_records or self.size > limits.bytes_per_piece

    def cut(self, limits: IntakeLimits) -> PieceBuffer:
        """Take a full piece off the front."""
        full, rest = PieceBuffer(), PieceBuffer()
        for origin, lines in self.lines:
            fits = 0
            if not rest.lines:
                records = limits.piece_records - full.records
                fits = lines.fitting(records, limits.bytes_per_piece - full.size)
            if fits:
                full.add(origin, lines.between(0, fits))
            if fits < len(lines):
                rest.add(origin, lines.between(fits, len(lines)))
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
                heap.add(reading.origin, lines)
                while heap.over(self._limits):
                    if not large:
                        self.flush()
                        large = True
                    self._stage(_parts(note, reading, heap.cut(self._limits), complete=False))
        except BaseException:
            self._tape.discard()
            raise
        parts = _parts(note, reading, heap, complete=True)
        if large:
            self._stage(parts)
            self._append()
        else:
            self._share(parts, heap)

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

    def _share(self, parts: Sequence[PiecePart], heap: PieceBuffer) -> None:
        records, size = self._records + heap.records, self._size + heap.size
        if records > self._limits.piece_records or size > self._limits.bytes_per_piece:
            self.flush()
            records, size = heap.records, heap.size
        self._shared += parts
        self._records, self._size = records, size

    def _stage(self, parts: Sequence[PiecePart]) -> None:
        self._tape.stage(parts, self._clock())


def _parts(
    note: DeliveryNote, reading: DeliveryReader, heap: PieceBuffer, complete: bool
) -> list[PiecePart]:
    """What a piece holds of a delivery: one part, or one for each member of an archive."""
    found = [
        _part(note, origin, [lines for _, lines in some])
        for origin, some in groupby(heap.lines, key=lambda pair: pair[0])
    ] or [_part(note, reading.origin, [])]
    last = found[-1]
    sha256 = reading.sha256 if complete else None
    found[-1] = replace(last, facts=replace(last.facts, sha256=sha256, complete=complete))
    return found


def _part(note: DeliveryNote, origin: Origin, lines: list[Lines]) -> PiecePart:
    facts = DeliveryPart(
        delivery=note.delivery,
        name=note.name,
        sha256=None,
        bytes=note.size,
        records=sum(map(len, lines)),
        first_line=int(lines[0].numbers[0]) if lines else 0,
        last_line=int(lines[-1].numbers[-1]) if lines else 0,
        complete=False,
    )
    return PiecePart(facts, tuple(lines), origin.header, file=_file(note, origin))


def _file(note: DeliveryNote, origin: Origin) -> FileOrigin | None:
    if not origin.kept:
        return None
    path = note.name if origin.member is None else f"{note.name}/{origin.member}"
    return FileOrigin(path, None if note.modified_ns is None else note.modified_ns // 1_000)
