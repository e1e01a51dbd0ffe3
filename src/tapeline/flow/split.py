"""Messages whose rows are records of their own: each row has its own verdict.

The rules have looked at the message as a whole. One that has a verdict by then stays whole, as one
record without a row; of the others every row goes on as a record, with its number in its position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.position import ROW_POSITION, WHOLE
from tapeline.flow.sheet import OPEN, DecodedFacts, VerdictSheet, flags
from tapeline.flow.step_input import Numbers


@dataclass(frozen=True)
class Units:
    """The records that messages become: message, number of the row in it, place of the row."""

    message: Numbers
    row: Numbers
    place: Numbers  # -1 where there is no row


def split(bench: VerdictSheet) -> VerdictSheet:
    """The bench of the rows; verdicts of whole messages are taken over."""
    units = _units(bench)
    given = replace(
        bench.given,
        positions=_positions(bench, units),
        again=int((units.message >= bench.given.records - bench.given.again).sum()),
        only={},
    )
    there = units.place >= 0
    out = bench.out.take(pa.array(units.place[there]))
    ordinal = np.flatnonzero(there)
    first = np.full(given.records, -1, dtype=np.int64)
    first[ordinal] = np.arange(len(ordinal))
    verdict = bench.verdict[units.message]
    reasons = {
        unit: list(bench.reasons.get(int(units.message[unit]), []))
        for unit in np.flatnonzero(verdict != OPEN).tolist()
    }
    facts = _facts(bench, out, first, units)
    rows = VerdictSheet(
        bench.step, given, out, ordinal, first, facts, units.message, verdict, reasons
    )
    for unit in np.flatnonzero((verdict == OPEN) & ~there).tolist():
        rows.give(unit, "dropped", [bench.step.left_out])
    return rows


def _facts(bench: VerdictSheet, out: pa.Table, first: Numbers, units: Units) -> DecodedFacts:
    """What each row says of itself; a message that stays whole has no key of its own."""
    position = out["_position"].combine_chunks()
    places = pa.array(first, mask=(first < 0) | (units.row == WHOLE))
    deletes = flags(pc.struct_field(position, "deletes").take(places))
    missing = np.flatnonzero(first < 0)
    return DecodedFacts(bench.facts.arrives, missing, position, deletes, position, places)


def _units(bench: VerdictSheet) -> Units:
    """One per row of an open message, one per message with a verdict, and what is sent again."""
    ordinal, only = bench.ordinal, bench.given.only
    number = numbered(ordinal)
    chosen = np.zeros(bench.given.records, dtype=np.bool_)
    chosen[list(only)] = True
    opened = bench.has(OPEN) & ~chosen
    rows = np.flatnonzero(opened[ordinal])
    whole = np.flatnonzero(~opened & ~chosen)
    again = [(m, row) for m, wanted in only.items() for row in sorted(wanted)]
    parts = [
        (ordinal[rows], number[rows], rows),
        (whole, np.full(len(whole), WHOLE), bench.first[whole]),
        (
            np.array([m for m, _ in again], dtype=np.int64),
            np.array([row for _, row in again], dtype=np.int64),
            np.array([_place(bench, ordinal, *one) for one in again], dtype=np.int64),
        ),
    ]
    message, row, place = (
        np.concatenate(each).astype(np.int64) for each in zip(*parts, strict=True)
    )
    order = np.lexsort((row, message))
    return Units(message[order], row[order], place[order])


def _place(bench: VerdictSheet, ordinal: Numbers, message: int, row: int) -> int:
    """Where a message's row is, -1 where the step makes it no more."""
    first = int(bench.first[message])
    there = first >= 0 and first + row < len(ordinal) and ordinal[first + row] == message
    return first + row if there else -1


def _positions(bench: VerdictSheet, units: Units) -> pa.StructArray:
    whole = bench.given.positions.take(pa.array(units.message))
    arrays = [pc.struct_field(whole, name) for name in ("source", "part", "at")]
    return pa.StructArray.from_arrays(
        [*arrays, pa.array(units.row, pa.int32())], fields=list(ROW_POSITION)
    )


def numbered(record: Numbers) -> Numbers:
    """0, 1, 2... within each record; records are contiguous."""
    if not len(record):
        return record
    starts = np.flatnonzero(np.concatenate([[True], record[1:] != record[:-1]]))
    return np.arange(len(record)) - np.repeat(starts, np.diff(np.append(starts, len(record))))
