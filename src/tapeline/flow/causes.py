"""Causes: why an entry is there, and the clock that says what is late."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.schemas import BEGINNING
from tapeline.declare.duration import parse_duration
from tapeline.flow.key_verdicts import KeyedRecords, KeyVerdicts
from tapeline.flow.sheet import CODES, VerdictSheet
from tapeline.flow.step_input import Numbers, StepInput

CAUSES = ("on_time", "late", "correction", "cancellation", "redrive")


def cause_of_time(bench: VerdictSheet, clock: int) -> tuple[pa.Array, int]:
    """on_time or late for every record, by the highest time of all earlier ones on the tape."""
    step, out, given = bench.step, bench.out, bench.given
    if given.causes is not None:
        return given.causes, clock
    late = np.zeros(given.records, dtype=np.bool_)
    if step.table.time is not None:
        counted = [CODES[word] for word in ("", "kept", "superseded", "duplicate")]
        fresh = np.arange(given.records) < given.records - given.again
        records = np.flatnonzero(np.isin(bench.verdict, counted) & (bench.first >= 0) & fresh)
        column = out[step.table.time].take(pa.array(bench.first[records]))
        times = pc.fill_null(pc.cast(column, pa.int64()), BEGINNING).to_numpy()
        highest = np.maximum.accumulate(np.concatenate([[clock], times]))
        allowed = int(parse_duration(step.table.late_after).total_seconds() * 1_000_000)
        earlier = highest[:-1]
        late[records] = (earlier > BEGINNING) & (
            times < np.maximum(earlier, BEGINNING + allowed) - allowed
        )
        clock = int(highest[-1])
    return pa.array(CAUSES).take(pa.array(late.astype(np.int8))), clock


def cause_changes(
    causes: pa.Array, places: Numbers, keyed: KeyedRecords, decided: KeyVerdicts
) -> pa.Array:
    """A record that changes what stood, or takes it out, says so instead of its lateness."""
    changes = decided.changes
    if not changes.any():
        return causes
    codes = pc.index_in(causes, pa.array(CAUSES)).to_numpy(zero_copy_only=False).astype(np.int8)
    deletes = keyed.deletes[changes]
    codes[places[changes]] = np.where(
        deletes, CAUSES.index("cancellation"), CAUSES.index("correction")
    )
    return pa.array(CAUSES).take(pa.array(codes))


def cause_again(causes: pa.Array, given: StepInput) -> pa.Array:
    """Records that come again say so, whatever they do."""
    if not given.again:
        return causes
    again = pa.array(["redrive"] * given.again, pa.string())
    return pa.concat_arrays([causes.slice(0, given.records - given.again), again])
