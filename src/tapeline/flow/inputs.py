"""The input of a batch: its records from the tapes, and records that operators send again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from tapeline.books.operator import DISMISS, REDRIVE, Act
from tapeline.books.position import WHOLE, Position, position_of
from tapeline.books.tape_batches import TapeBatch
from tapeline.flow.backlog import TapeRanges
from tapeline.flow.culprits import make
from tapeline.flow.step_input import StepInput, StepOutput, kept_records, tape_records, with_acts
from tapeline.flow.steps import Steps, TableStep
from tapeline.flow.table import TableState


class Records(Protocol):
    """A tape for reading."""

    def read(self, batches: Iterable[TapeBatch]) -> pa.Table:
        """The records of some batches, in tape order."""

    def find(self, places: Sequence[tuple[int, int]]) -> pa.Table:
        """Single records by part and place, in that order."""


@dataclass(frozen=True)
class BatchInput:
    """Input rows of a batch and the output of its first steps. Not committed yet."""

    steps: Steps
    tapes: dict[str, StepInput]
    given: dict[str, StepInput]  # by table: its tape's records, and those that come again
    made: dict[str, StepOutput]
    acts: Sequence[Act] = ()
    above: Mapping[str, StepInput] = field(default_factory=dict)  # of tables that are only read


@dataclass(frozen=True)
class InputReader:
    """Where a batch's records come from: the tapes, and for acts of operators what is stored."""

    tapes: Mapping[str, Records]
    memories: Mapping[str, TableState]
    culprits: int  # maximum records of a batch that may make a step fail

    def begin(self, steps: Steps, cut: TapeRanges, acts: Sequence[Act] = ()) -> BatchInput:
        """Read a cut's records and run the steps that read them.

        Without acts of operators nothing here depends on state, so it may run ahead.
        """
        tapes = {
            source: tape_records(self.tapes[source].read(batches), source)
            for source, batches in cut.items()
        }
        given: dict[str, StepInput] = {}
        for step in steps.tables:
            if step.faults is not None:
                found = self.with_acts(steps, step, tapes.get(step.table.stream), acts)
                if found is not None:
                    given[step.table.name] = found
        made = {
            step.table.name: make(step, given[step.table.name], self.culprits)
            for step in steps.tables
            if step.table.name in given
        }
        return BatchInput(steps, tapes, given, made, acts)

    def with_acts(
        self, steps: Steps, step: TableStep, given: StepInput | None, acts: Sequence[Act]
    ) -> StepInput | None:
        """A table's new records, and those that operators send again or dismiss."""
        last = {act.position: act for act in acts if act.table == step.table.name}
        if not last:
            return given
        stored = self.memories[step.table.name].stored
        redriven, dismissed = (
            stored.standing([p for p, act in last.items() if act.act == word], "quarantined")
            for word in (REDRIVE, DISMISS)
        )
        places = [position_of(position) for position in redriven["_position"].to_pylist()]
        stream = step.table.stream
        if step.faults is not None:
            # In the order of the tape, as it finds them; of a message several rows may come again.
            messages = sorted({place.whole for place in places})
            leaf = self.tapes[stream].find([(place.part, place.at) for place in messages])
            records = {place.whole: last[place].record for place in places}
            leaf = _corrected(leaf, [records[place] for place in messages])
            again = replace(tape_records(leaf, stream), only=_only(messages, places))
            empty = tape_records(leaf.slice(0, 0), stream)
        else:
            above = steps.table(stream)
            kept = self.memories[stream].stored.standing(places, "kept")
            again = kept_records(above, kept)
            empty = kept_records(above, kept.slice(0, 0))
        return with_acts(given or empty, again, redriven, dismissed)


def _only(messages: Sequence[Position], places: Sequence[Position]) -> dict[int, list[int]]:
    """The rows that come again, by the number of their message, where not all of it does."""
    whole = {place.whole for place in places if place.row == WHOLE}
    found: dict[int, list[int]] = {}
    for place in places:
        if place.whole not in whole:
            found.setdefault(messages.index(place.whole), []).append(place.row)
    return found


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
