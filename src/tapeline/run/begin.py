"""The beginning of a batch: its records off the tapes, and what operators send again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tapeline.books.operator import DISMISS, REDRIVE, Act
from tapeline.run.backlog import Cut
from tapeline.run.judging import Given, Memory, kept_records, tape_records, with_acts
from tapeline.run.steps import Steps, TableStep
from tapeline.run.tape import Tape


@dataclass(frozen=True)
class Begun:
    """A cut whose records are read and whose first steps have run; nothing of it is decided."""

    steps: Steps
    tapes: dict[str, Given]
    given: dict[str, Given]  # by table: its tape's records, and those that come again
    made: dict[str, pa.Table]
    acts: Sequence[Act] = ()


@dataclass(frozen=True)
class Beginning:
    """Where a batch's records come from: the tapes, and for acts of operators what is stored."""

    tapes: Mapping[str, Tape]
    memories: Mapping[str, Memory]

    def begin(self, steps: Steps, cut: Cut, acts: Sequence[Act] = ()) -> Begun:
        """Read a cut's records and run the steps that read them.

        Without acts of operators nothing here depends on state, so it may run ahead.
        """
        tapes = {
            source: tape_records(self.tapes[source].read(batches), source)
            for source, batches in cut.items()
        }
        given: dict[str, Given] = {}
        for step in steps.tables:
            if step.faults is not None:
                found = self.with_acts(steps, step, tapes.get(step.table.stream), acts)
                if found is not None:
                    given[step.table.name] = found
        made = {
            step.table.name: step.make(given[step.table.name].rows)
            for step in steps.tables
            if step.table.name in given
        }
        return Begun(steps, tapes, given, made, acts)

    def with_acts(
        self, steps: Steps, step: TableStep, given: Given | None, acts: Sequence[Act]
    ) -> Given | None:
        """A table's new records, and those that operators send again or dismiss."""
        last = {act.position: act for act in acts if act.table == step.table.name}
        if not last:
            return given
        stored = self.memories[step.table.name].stored
        redriven, dismissed = (
            stored.standing([p for p, act in last.items() if act.act == word], "quarantined")
            for word in (REDRIVE, DISMISS)
        )
        places = [(p["source"], p["part"], p["at"]) for p in redriven["_position"].to_pylist()]
        stream = step.table.stream
        if step.faults is not None:
            leaf = self.tapes[stream].find([(part, at) for _, part, at in places])
            again = tape_records(_corrected(leaf, [last[p].record for p in places]), stream)
            empty = tape_records(leaf.slice(0, 0), stream)
        else:
            above = next(s for s in steps.tables if s.table.name == stream)
            kept = self.memories[stream].stored.standing(places, "kept")
            again = kept_records(above, kept)
            empty = kept_records(above, kept.slice(0, 0))
        return with_acts(given or empty, again, redriven, dismissed)


def _corrected(leaf: pa.Table, records: Sequence[bytes | None]) -> pa.Table:
    """Tape rows with the bytes that operators put in their place."""
    if not any(record is not None for record in records):
        return leaf
    raws = zip(leaf["raw"].to_pylist(), records, strict=True)
    raw = pa.array([old if new is None else new for old, new in raws], pa.binary())
    faults = zip(leaf["fault"].to_pylist(), records, strict=True)
    fault = pa.array([old if new is None else None for old, new in faults], pa.string())
    for name, values in (("raw", raw), ("fault", fault)):
        leaf = leaf.set_column(leaf.schema.get_field_index(name), name, values)
    return leaf
