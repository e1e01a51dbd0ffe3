"""Culprits: the records on which a step's computation fails, found by halving a batch.

One record that overflows must not keep all others waiting. A step that fails runs again; if it
fails again, the records are halved until single ones are found, and the others' output is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.position import Position, position_of
from tapeline.books.reasons import FAILS
from tapeline.declare import Step
from tapeline.errors import OperationError, TapelineBug
from tapeline.flow.step_input import Numbers, StepInput, StepOutput
from tapeline.flow.steps import Failure, StepFailedError, SummaryStep, TableStep
from tapeline.words import counted

Run = Callable[[pa.Table], pa.Table]


class Culprits(Exception):
    """A summary fails on records of the table that it reads."""

    def __init__(self, table: str, failed: Mapping[Position, Failure]) -> None:
        super().__init__(table)
        self.table, self.failed = table, failed


class TooMany(Exception):
    """More records fail than a batch may have culprits."""

    def __init__(self, failed: Mapping[int, Failure]) -> None:
        super().__init__()
        self.first, self.failure = next(iter(failed.items()))


def make(step: TableStep, given: StepInput, limit: int) -> StepOutput:
    """What a table's step makes of its records; those on which it fails are named."""
    output = _made(step, given, limit)
    left_out = np.ones(given.records, dtype=np.bool_)
    left_out[_records_of(output.rows)] = False
    left_out[[record for record, failure in output.failed.items() if not failure.decoded]] = False
    if step.faults is None or not left_out.any():
        return output
    return replace(output, left_out=step.explain(given.rows.filter(pa.array(left_out))))


def _made(step: TableStep, given: StepInput, limit: int) -> StepOutput:
    with suppress(StepFailedError):
        return StepOutput(step.make(given.rows))
    try:
        return _without_culprits(step, given.rows, limit)
    except TooMany as many:
        place = _place(given.positions[many.first])
        raise at_fault(step.table, place, many.failure, limit) from None


def _without_culprits(step: TableStep, rows: pa.Table, limit: int) -> StepOutput:
    name, records = step.table.name, _records_of(rows)
    dark: dict[int, Failure] = {}
    settled = np.zeros(len(records), dtype=np.bool_)
    if step.faults is not None:
        facts, dark = halve(name, step.explain, rows, records, limit)
        # What cannot be read is quarantined for that, and of a deletion only the key counts.
        position = facts["_position"].combine_chunks()
        faulty = pc.fill_null(pc.not_equal(pc.struct_field(position, "faults"), ""), False)
        deletes = pc.fill_null(pc.struct_field(position, "deletes"), False)
        chosen = pc.struct_field(position, "ordinal").filter(pc.or_(faulty, deletes))
        settled = np.isin(records, chosen.to_numpy(zero_copy_only=False))
    open_to = ~settled & ~np.isin(records, list(dark))
    made, failed = halve(name, step.make, rows.filter(pa.array(open_to)), records[open_to], limit)
    parts = [made]
    with suppress(TooMany):  # they have their verdicts without it
        rest = rows.filter(pa.array(settled))
        parts.append(halve(name, step.make, rest, records[settled], limit)[0])
    failed |= {record: replace(one, decoded=False) for record, one in dark.items()}
    if len(failed) > limit:
        raise TooMany(failed)
    whole = pa.concat_tables(parts)
    order = np.argsort(_records_of(whole), kind="stable")
    return StepOutput(whole.take(pa.array(order)), failed)


def shares(step: SummaryStep, given: StepInput, leaf: pa.Table, limit: int) -> pa.Table:
    """What a summary makes of a table's rows; the records on which it fails end the batch.

    The leaf holds the given rows first. Those that do not count (sign 0) are tried only.
    """
    with suppress(StepFailedError):
        return _counting(step.prepared.run(leaf))
    own = _records_of(given.rows)
    others = given.records + np.arange(leaf.num_rows - len(own), dtype=np.int64)
    records = np.concatenate([own, others])
    places = leaf["_position"].combine_chunks()
    try:
        rows, failed = halve(step.summary.name, step.prepared.run, leaf, records, limit)
    except TooMany as many:
        place = _place(places[int(np.searchsorted(records, many.first))])
        raise at_fault(step.summary, place, many.failure, limit) from None
    if not failed:
        return _counting(rows)
    culprits: dict[Position, Failure] = {}
    for record, failure in failed.items():
        found = places[int(np.searchsorted(records, record))]
        if found["sign"].as_py() < 0:
            # It was posted by the same code, and a summary reads nothing but the table.
            raise TapelineBug(
                f"{step.summary.name}: the counted record {_place(found).text} cannot be reversed: "
                f"{failure.reason}. This batch was not committed."
            )
        culprits[_place(found)] = failure
    raise Culprits(step.summary.stream, culprits)


def halve(
    name: str, run: Run, rows: pa.Table, records: Numbers, limit: int
) -> tuple[pa.Table, dict[int, Failure]]:
    """What a function makes of rows without the records on which it fails, and those records.

    `records` says which record each row belongs to, in ascending order.
    """
    names, starts = np.unique(records, return_index=True)
    ends = np.append(starts, len(records))
    failed: dict[int, Failure] = {}

    def part(low: int, high: int) -> list[pa.Table]:
        some = rows.slice(int(starts[low]), int(ends[high] - starts[low]))
        attempts = 1 if high - low > 1 else 2  # one record must fail twice to be a culprit
        for attempt in range(attempts):
            try:
                return [run(some)]
            except StepFailedError as error:
                if attempt and high - low == 1:
                    failed[int(names[low])] = Failure.of(name, error)
        if high - low == 1:
            if len(failed) > limit:
                raise TooMany(failed)
            return []
        middle = (low + high) // 2
        return part(low, middle) + part(middle, high)

    found = part(0, len(names)) if len(names) else []
    return pa.concat_tables(found) if found else run(rows.slice(0, 0)), failed


def at_fault(step: Step, place: Position, failure: Failure, limit: int) -> OperationError:
    """With this many culprits the step itself is at fault."""
    words = failure.reason.replace(FAILS, f"fails on more than {counted(limit, 'record')}")
    return OperationError(
        f"{step.where}: {words}. "
        f"The first is {place.text}. The code is probably wrong: correct it, and the batch is "
        "retried; nothing was committed. If the records are wrong, raise flow.culprits_per_batch "
        "to quarantine them."
    )


def _place(position: pa.StructScalar) -> Position:
    return position_of(position.as_py())


def _counting(rows: pa.Table) -> pa.Table:
    """Without the rows that were only tried."""
    signs = pc.struct_field(rows["_position"].combine_chunks(), "sign")
    if pc.all(pc.not_equal(signs, 0)).as_py() is not False:
        return rows
    return rows.filter(pc.not_equal(signs, 0))


def _records_of(rows: pa.Table) -> Numbers:
    """The record of each row of a leaf, or of what a step made of it."""
    if "_position" in rows.column_names:
        column = pc.struct_field(rows["_position"].combine_chunks(), "ordinal")
    else:
        column = rows["ordinal"]
    found: Numbers = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
    return found
