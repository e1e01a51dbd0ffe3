"""The work sheet of a batch: what is known of every record while it is judged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.schemas import VERDICTS
from tapeline.run.judging.given import Given, Numbers
from tapeline.run.steps import TableStep

Flags = npt.NDArray[np.bool_]
# A record's verdict while it is found out, as a number: 0 is none yet.
WORDS = ("", *VERDICTS)
CODES = {word: code for code, word in enumerate(WORDS)}
OPEN, KEPT = CODES[""], CODES["kept"]


class Bench:
    """A verdict per record, its reasons, and what the step and decoding made of it."""

    def __init__(self, step: TableStep, given: Given, out: pa.Table) -> None:
        self.step, self.given, self.out = step, given, out
        position = out["_position"].combine_chunks()
        self.ordinal = numbers(pc.struct_field(position, "ordinal"))  # the record of each row
        self.first = _first_rows(self.ordinal, given.records)  # -1 where a record has no row
        self.facts = Facts(step, given, self.first, position)
        self.verdict = np.zeros(given.records, dtype=np.int8)
        self.reasons: dict[int, list[str]] = {}

    def give(self, record: int, verdict: str, reasons: list[str]) -> None:
        if self.verdict[record] in (OPEN, CODES[verdict]):
            self.verdict[record] = CODES[verdict]
            known = self.reasons.setdefault(record, [])
            known += [reason for reason in reasons if reason and reason not in known]

    def has(self, code: int) -> Flags:
        """The records that have a verdict; OPEN: those that have none yet."""
        flags: Flags = self.verdict == code
        return flags

    def words(self) -> pa.Array:
        return pa.array(WORDS).take(pa.array(self.verdict))

    def count(self) -> Counter[str]:
        counts = np.bincount(self.verdict, minlength=len(WORDS)).tolist()
        return Counter({word: n for word, n in zip(WORDS, counts, strict=True) if n})


class Facts:
    """What decoding found out about each record, also of those that the step left out."""

    def __init__(
        self, step: TableStep, given: Given, row: Numbers, position: pa.StructArray
    ) -> None:
        self.arrives = step.faults is not None
        self.missing = np.flatnonzero(row < 0)
        self.of_rows = position
        if self.arrives and len(self.missing):
            left_out = step.explain(given.rows.take(pa.array(self.missing)))
            found = left_out["_position"].combine_chunks()
            row = row.copy()
            row[self.missing] = len(position) + np.arange(len(self.missing))
            position = pa.concat_arrays([position, found])
        self._position, self._row = position, pa.array(row, mask=row < 0)
        self.deletes = np.zeros(len(row), dtype=np.bool_)  # the records that take their key out
        if step.table.apply_as_deletes:
            self.deletes = pc.fill_null(self.of("deletes"), False).to_numpy(zero_copy_only=False)

    def of(self, name: str) -> pa.Array:
        """A fact of every record."""
        return pc.struct_field(self._position, name).take(self._row)


def numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    """A column's values as whole numbers."""
    found: Numbers = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _first_rows(ordinal: Numbers, records: int) -> Numbers:
    """The first output row of each record, -1 where it has none."""
    first = np.full(records, -1, dtype=np.int64)
    first[ordinal[::-1]] = np.arange(len(ordinal) - 1, -1, -1)
    return first
