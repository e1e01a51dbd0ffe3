"""What is given to a step: the records of a batch, from the tape or from the table before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.schemas import POSITION
from tapeline.flow.standing_rows import Reversal
from tapeline.flow.steps import Failure, TableStep

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StepInput:
    """The records that a table's batch starts from, in tape order, and those taken back."""

    rows: pa.Table  # the leaf that Spark reads; its ordinal says which record a row belongs to
    positions: pa.Array  # one per record
    causes: pa.Array | None = None  # after the first table: inherited
    row_counts: Numbers | None = None  # rows per record, where records have several
    back: Sequence[Reversal] = ()
    back_rows: pa.Table | None = None  # the rows that no longer count, as they were stored
    tried_rows: pa.Table | None = None  # rows that never counted: would the summaries take them?
    redriven: pa.Table | None = None  # the register rows of the last records, which come again
    dismissed: pa.Table | None = None  # the register rows of records that shall not come again
    again: int = 0  # number of trailing records that are being redriven
    # Of messages that come again for some of their rows only, which ones.
    only: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return len(self.positions)

    @property
    def net_records(self) -> int:
        """What the verdicts add up to: records that came, without those that had one before."""
        redriven = self.redriven.num_rows if self.redriven is not None else 0
        return self.records - len(self.back) - redriven


@dataclass(frozen=True)
class StepOutput:
    """What a table's step made of a batch, and the records on which it, or a summary, fails."""

    rows: pa.Table
    failed: Mapping[int, Failure] = field(default_factory=dict)
    # Of records without a row, what decoding alone says of them; their numbers are in `ordinal`.
    left_out: pa.Table | None = None


def tape_records(tape: pa.Table, source: str) -> StepInput:
    """The records of tape rows that are in tape order."""
    count = tape.num_rows
    ordinal = pa.array(np.arange(count, dtype=np.int64))
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), [source])
    part, at = (tape[name].combine_chunks() for name in ("part", "at"))
    positions = pa.StructArray.from_arrays(
        [names.cast(pa.string()), part, at], fields=list(POSITION)
    )
    return StepInput(tape.append_column("ordinal", ordinal), positions)


def kept_records(step: TableStep, stored: pa.Table) -> StepInput:
    """Kept register rows as input of downstream steps, in the order of their positions."""
    where = stored["_position"].combine_chunks()
    first = stored["_row"].to_numpy() == 0
    ordinals = np.cumsum(first) - 1
    again = pa.array(["redrive"] * len(where), pa.string())
    return StepInput(
        leaf_rows(step, stored, where, ordinals, again),
        where.filter(pa.array(first)),
        pa.array(["redrive"] * int(first.sum()), pa.string()),
        np.bincount(ordinals, minlength=int(first.sum())) if step.explodes else None,
    )


def leaf_rows(
    step: TableStep,
    rows: pa.Table,
    where: pa.StructArray,
    ordinals: Numbers,
    causes: pa.Array,
    sign: int = 1,
) -> pa.Table:
    """A table's rows as input of downstream steps: `_position` has what they pass on."""
    carried = pa.StructArray.from_arrays(
        [
            *[pc.struct_field(where, field.name) for field in step.position],
            pa.array(ordinals, pa.int64()),
            causes,
            pa.array(np.full(len(where), sign, dtype=np.int32)),
        ],
        fields=list(step.carried),
    )
    leaf = rows.select(step.columns.names).append_column("_position", carried)
    return leaf.cast(step.leaf_schema)


def with_acts(
    given: StepInput, again: StepInput, redriven: pa.Table, dismissed: pa.Table
) -> StepInput:
    """A batch's records, followed by those that are sent again."""
    rows = again.rows
    if "_position" in rows.column_names:
        rows = _renumbered(rows, given.records)
    else:
        numbers = np.arange(rows.num_rows, dtype=np.int64) + given.records
        place = rows.schema.get_field_index("ordinal")
        rows = rows.set_column(place, "ordinal", pa.array(numbers))
    counts = None
    if given.row_counts is not None or again.row_counts is not None:
        counts = np.concatenate([_counts(given), _counts(again)])
    return StepInput(
        pa.concat_tables([given.rows, rows.select(given.rows.column_names)]),
        pa.concat_arrays([given.positions, again.positions]),
        None if given.causes is None else pa.concat_arrays([given.causes, again.causes]),
        counts,
        given.back,
        given.back_rows,
        given.tried_rows,
        redriven,
        dismissed,
        again.records,
        {given.records + place: rows for place, rows in again.only.items()},
    )


def _counts(given: StepInput) -> Numbers:
    if given.row_counts is not None:
        return given.row_counts
    return np.ones(given.records, dtype=np.int64)


def _renumbered(rows: pa.Table, first: int) -> pa.Table:
    """The rows of carried records with their ordinals moved on."""
    position = rows["_position"].combine_chunks()
    carried = list(position.type)
    arrays = [
        pc.add(position.field(f.name), first) if f.name == "ordinal" else position.field(f.name)
        for f in carried
    ]
    moved = pa.StructArray.from_arrays(arrays, fields=carried)
    return rows.set_column(rows.schema.get_field_index("_position"), "_position", moved)
