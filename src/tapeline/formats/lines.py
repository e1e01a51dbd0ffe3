"""Splitting bytes into lines: vectorised, in bounded memory, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from tapeline.books.reasons import reason
from tapeline.declare.format import RecordFile
from tapeline.words import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

LF = b"\n"
CR = b"\r"
# What bytes.isspace() calls whitespace, as a table from byte to answer.
SPACE = np.array([bytes([byte]).isspace() for byte in range(256)])


@dataclass(frozen=True)
class Lines(Sequence[bytes]):
    """Records of one delivery in a row: bytes without line ends, lengths and line numbers.

    `faults` says what is wrong with a record, by its index here.
    """

    values: bytes | memoryview
    lengths: NDArray[np.int64]
    numbers: NDArray[np.int64]
    faults: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return self.records()[index]

    def records(self) -> list[bytes]:
        """The records one by one: for tests and headers, not for speed."""
        ends = np.cumsum(self.lengths).tolist()
        return [
            bytes(self.values[end - length : end])
            for end, length in zip(ends, self.lengths.tolist(), strict=True)
        ]

    def between(self, first: int, last: int) -> Lines:
        """The records with indexes from `first` to just before `last`, without copying bytes."""
        start = int(self.lengths[:first].sum())
        end = start + int(self.lengths[first:last].sum())
        return Lines(
            values=memoryview(self.values)[start:end],
            lengths=self.lengths[first:last],
            numbers=self.numbers[first:last],
            faults={i - first: fault for i, fault in self.faults.items() if first <= i < last},
        )

    def without(self, beginning: bytes) -> Lines:
        """The records that do not begin with some bytes."""
        data = np.frombuffer(self.values, np.uint8)
        starts = np.cumsum(self.lengths) - self.lengths
        dropped = self.lengths >= len(beginning)
        for place, byte in enumerate(beginning):
            suspects = np.flatnonzero(dropped)
            dropped[suspects] = data[starts[suspects] + place] == byte
        if not dropped.any():
            return self
        kept = np.flatnonzero(~dropped)
        places = {int(old): new for new, old in enumerate(kept)} if self.faults else {}
        return Lines(
            values=data[np.repeat(~dropped, self.lengths)].tobytes(),
            lengths=self.lengths[kept],
            numbers=self.numbers[kept],
            faults={places[i]: fault for i, fault in self.faults.items() if i in places},
        )

    def fitting(self, records: int, size_bytes: int) -> int:
        """How many records, from the first, stay within both limits."""
        ends = np.cumsum(self.lengths[:records])
        return int(np.searchsorted(ends, size_bytes, side="right"))


def lines_of(records: Sequence[bytes], first_number: int, record_bytes: int) -> Lines:
    """Records that are already apart, as Lines: what is longer than `record_bytes` is cut."""
    faults = {
        index: too_long(len(record), record_bytes)
        for index, record in enumerate(records)
        if len(record) > record_bytes
    }
    kept = [record[:record_bytes] for record in records] if faults else records
    return Lines(
        values=b"".join(kept),
        lengths=np.fromiter(map(len, kept), np.int64, len(kept)),
        numbers=np.arange(first_number, first_number + len(kept), dtype=np.int64),
        faults=faults,
    )


def too_long(size_bytes: int, limit_bytes: int) -> str:
    """The fault of a record that is kept cut."""
    return reason(
        "record is longer than the limit; the whole line is in the archived file",
        f"{counted(size_bytes, 'byte')}, the limit is {limit_bytes:,}",
    )


class Splitter:
    """Cuts a stream of chunks into lines.

    A line ends at `end`; one CR before a LF belongs to the line end. Blank lines are counted,
    not kept. Of a line longer than `record_bytes` only that much is ever held in memory.
    """

    def __init__(self, end: bytes, record_bytes: int, lines_before: int = 0) -> None:
        self.number = lines_before
        self.seen_end = False
        self._end = end
        self._limit = record_bytes
        self._open = b""  # the line that has not ended yet, at most `record_bytes` of it
        self._skipped = b""  # the last byte of what was left out of it
        self._skipped_bytes = 0
        self._skipped_blank = True

    def feed(self, chunk: bytes) -> Iterator[Lines]:
        """The lines that end in this chunk."""
        if self._skipped_bytes:
            cut = chunk.find(self._end)
            self._skip(chunk if cut < 0 else chunk[:cut])
            if cut < 0:
                return
            self.seen_end = True
            yield from self._end_long_line()
            chunk = chunk[cut + 1 :]
        block = self._open + chunk if self._open else chunk
        cut = block.rfind(self._end) + 1
        self._open = block[cut:]
        if len(self._open) > self._limit:
            rest = self._open[self._limit :]
            self._open = self._open[: self._limit]
            self._skip(rest)
        if cut:
            self.seen_end = True
            yield from self._split(block[:cut])

    def finish(self) -> Iterator[Lines]:
        """The last line, when no line end follows it."""
        if self._skipped_bytes:
            yield from self._end_long_line()
        elif self._open:
            block, self._open = self._open + self._end, b""
            yield from self._split(block)

    def _skip(self, rest: bytes) -> None:
        if rest:
            self._skipped = rest[-1:]
            self._skipped_bytes += len(rest)
            self._skipped_blank = self._skipped_blank and rest.isspace()

    def _end_long_line(self) -> Iterator[Lines]:
        size = len(self._open) + self._skipped_bytes
        if self._end == LF and self._skipped == CR:
            size -= 1
        record, blank = self._open, self._skipped_blank and self._open.isspace()
        self._open, self._skipped_bytes, self._skipped_blank = b"", 0, True
        self.number += 1
        if not blank:
            faults = {0: too_long(size, self._limit)} if size > self._limit else {}
            lines = lines_of([record], self.number, self._limit)
            yield Lines(lines.values, lines.lengths, lines.numbers, faults)

    def _split(self, block: bytes) -> Iterator[Lines]:
        # One CR before each LF goes, and only one: exactly what this replacement does.
        if self._end == LF and b"\r\n" in block:
            block = block.replace(b"\r\n", LF)
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == self._end[0])
        starts = np.empty_like(ends)
        starts[0], starts[1:] = 0, ends[:-1] + 1
        lengths = ends - starts
        numbers = np.arange(self.number + 1, self.number + 1 + len(ends), dtype=np.int64)
        self.number += len(ends)
        blank = _blank(data, starts, ends)
        kept, long = ~blank, lengths > self._limit
        if not kept.any():
            return
        if bool((lengths[blank] == 0).all()) and not long.any():
            values, sizes = block.replace(self._end, b""), lengths[kept]
        else:
            sizes = np.minimum(lengths, self._limit)[kept]
            values = _gather(data, starts[kept], sizes)
        cut = np.flatnonzero(long[kept]).tolist()
        whole = lengths[kept]
        faults = {index: too_long(int(whole[index]), self._limit) for index in cut}
        yield Lines(values, sizes, numbers[kept], faults)


def split_lines(file: RecordFile) -> Iterator[Lines]:
    """The lines of a file."""
    for end in (LF, CR):
        splitter = Splitter(end, file.record_bytes, file.lines_before)
        returns = False
        for chunk in file.chunks():
            returns = returns or (not splitter.seen_end and CR in chunk)
            yield from splitter.feed(chunk)
        # Without any LF nothing was given out yet, and CR may be the line end (old Macs).
        if splitter.seen_end or not returns or end == CR:
            yield from splitter.finish()
            return


def _blank(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which lines are empty or whitespace only."""
    # An empty line's first byte is its own line end, which counts as whitespace here.
    suspects: NDArray[np.bool_] = SPACE[data[starts]] & SPACE[data[ends - 1]]
    suspects |= ends == starts
    if not suspects[ends > starts].any():
        return suspects
    # Few files get here: the ones with lines that begin and end in whitespace.
    solid = np.cumsum(~SPACE[data])
    blank: NDArray[np.bool_] = solid[ends] - solid[starts] + ~SPACE[data[starts]] == 0
    return blank


def _gather(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> bytes:
    """The bytes of some ranges of `data`, one after the other."""
    step = np.zeros(len(data) + 1, np.int8)
    step[starts] += 1
    step[starts + sizes] -= 1
    inside: NDArray[np.bool_] = np.cumsum(step[:-1], dtype=np.int8).astype(bool)
    return bytes(data[inside].tobytes())
