"""The work sheet of a batch: what is known of every record while it is judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.schemas import VERDICTS
from tapeline.flow.step_input import Numbers, StepInput, StepOutput
from tapeline.flow.steps import TableStep

Flags = npt.NDArray[np.bool_]
# A record's verdict while it is found out, as a number: 0 is none yet.
WORDS = ("", *VERDICTS)
CODES = {word: code for code, word in enumerate(WORDS)}
OPEN, KEPT = CODES[""], CODES["kept"]


@dataclass
class VerdictSheet:
    """A verdict per record, its reasons, and what the step and decoding made of it."""

    step: TableStep
    given: StepInput
    out: pa.Table
    ordinal: Numbers  # the record of each row
    first: Numbers  # the first row of each record, -1 where it has none
    facts: DecodedFacts
    message: Numbers  # the record of the input that each belongs to: itself, if it is not split
    verdict: npt.NDArray[np.int8]
    reasons: dict[int, list[str]]

    @classmethod
    def of(cls, step: TableStep, given: StepInput, made: StepOutput) -> VerdictSheet:
        """Nothing is judged yet."""
        out = made.rows
        position = out["_position"].combine_chunks()
        ordinal = numbers(pc.struct_field(position, "ordinal"))
        first = _first_rows(ordinal, given.records)
        facts = DecodedFacts.of_step(step, first, position, made)
        verdict = np.zeros(given.records, dtype=np.int8)
        return cls(step, given, out, ordinal, first, facts, np.arange(given.records), verdict, {})

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


@dataclass(frozen=True)
class DecodedFacts:
    """What is known of each record's identity and faults, also of those that the step left out."""

    arrives: bool
    missing: Numbers  # the records without a row
    of_rows: pa.StructArray  # `_position` of the step's rows
    deletes: Flags  # the records that take their key out
    _position: pa.StructArray
    _row: pa.Array  # where in it each record's facts are

    @classmethod
    def of_step(
        cls, step: TableStep, first: Numbers, position: pa.StructArray, made: StepOutput
    ) -> DecodedFacts:
        """By each record's first row; decoding alone tells of those that have none.

        Of records that cannot be decoded either nothing is known.
        """
        of_rows, row, missing = position, first, np.flatnonzero(first < 0)
        if made.left_out is not None:
            found = made.left_out["_position"].combine_chunks()
            row = row.copy()
            row[numbers(pc.struct_field(found, "ordinal"))] = len(position) + np.arange(len(found))
            position = pa.concat_arrays([position, found])
        places = pa.array(row, mask=row < 0)
        deletes = np.zeros(len(row), dtype=np.bool_)
        if step.table.apply_as_deletes:
            deletes = flags(pc.struct_field(position, "deletes").take(places))
        return cls(step.faults is not None, missing, of_rows, deletes, position, places)

    def of(self, name: str) -> pa.Array:
        """A fact of every record."""
        return pc.struct_field(self._position, name).take(self._row)


def flags(column: pa.Array) -> Flags:
    """A column of true and false; null is false."""
    found: Flags = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found


def numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    """A column's values as whole numbers."""
    found: Numbers = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _first_rows(ordinal: Numbers, records: int) -> Numbers:
    """The first output row of each record, -1 where it has none."""
    first = np.full(records, -1, dtype=np.int64)
    first[ordinal[::-1]] = np.arange(len(ordinal) - 1, -1, -1)
    return first
