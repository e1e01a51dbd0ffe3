"""The rules: what cannot be read, breaks an expectation, or was left out or multiplied."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.reasons import reason
from tapeline.errors import OperationError
from tapeline.flow.sheet import Flags, VerdictSheet, flags
from tapeline.flow.step_input import StepOutput
from tapeline.formats.faults import FAULT_SEPARATOR, UNREADABLE


def quarantine_failed(bench: VerdictSheet, made: StepOutput) -> None:
    """Records on which the table's step fails, or a summary that reads the table."""
    for record, failure in made.failed.items():
        bench.give(record, "quarantined", [reason(failure.reason, failure.words)])


def apply_rules(bench: VerdictSheet) -> None:
    """Faults and broken rules, found by Spark.

    What cannot be read breaks no rules besides; nor does a deletion, of which only the key counts.
    """
    step, out, position, ordinal = bench.step, bench.out, bench.facts.of_rows, bench.ordinal
    unreadable = set()
    deletes = bench.facts.deletes[ordinal]
    if step.splits:
        deletes = flags(pc.struct_field(position, "deletes"))
    if bench.facts.arrives:
        for row in _marked(pc.struct_field(position, "faults")):
            faults = position[row]["faults"].as_py().split(FAULT_SEPARATOR)
            bench.give(int(ordinal[row]), "quarantined", faults)
            if faults[0].startswith(UNREADABLE):
                unreadable.add(int(ordinal[row]))
    for row in _marked(out["_fail"]):
        if deletes[row] or int(ordinal[row]) in unreadable:
            continue
        record = position[row].as_py()
        raise OperationError(
            f"{step.table.where}: {step.table.name}() stops at a record that fails "
            f"'{out['_fail'][row].as_py()}': {record['source']} part {record['part']} at "
            f"{record['at']}. Correct the rule or the record; this batch was not committed."
        )
    for column, verdict in (("_quarantine", "quarantined"), ("_drop", "dropped")):
        for row in _marked(out[column]):
            if not deletes[row] and int(ordinal[row]) not in unreadable:
                reasons = out[column][row].as_py().split(FAULT_SEPARATOR)
                bench.give(int(ordinal[row]), verdict, reasons)


def compare_counts(bench: VerdictSheet) -> None:
    """Records that a step left out, or multiplied without an explode."""
    given, facts = bench.given, bench.facts
    counts = np.bincount(bench.ordinal, minlength=given.records)
    expected = given.row_counts if given.row_counts is not None else 1
    if not bench.step.explodes:
        for several in np.flatnonzero(counts > expected).tolist():
            why = "the step makes several rows of this record: a reference has repeated keys"
            bench.give(several, "quarantined", [why])
    if not len(facts.missing):
        return
    places = pa.array(facts.missing)
    faults = facts.of("faults").take(places).to_pylist() if facts.arrives else []
    for place, record in enumerate(facts.missing.tolist()):
        if faults and faults[place]:
            bench.give(record, "quarantined", faults[place].split(FAULT_SEPARATOR))
        elif not facts.deletes[record]:
            bench.give(record, "dropped", [bench.step.left_out])


def sentences(column: pa.ChunkedArray, counting: Flags | None) -> Counter[str]:
    rows = [r for r in _marked(column) if counting is None or counting[r]]
    return Counter(s for row in rows for s in column[row].as_py().split(FAULT_SEPARATOR))


def _marked(column: pa.ChunkedArray | pa.Array) -> list[int]:
    """The rows whose text is not empty."""
    marked = pc.fill_null(pc.not_equal(column, ""), False)
    flags = (
        marked.to_numpy(zero_copy_only=False) if isinstance(marked, pa.Array) else marked.to_numpy()
    )
    return [int(row) for row in np.flatnonzero(flags)]
