"""What is given to a step: the records of a batch, from the tape or from the table before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.schemas import POSITION
from tapeline.run.judging.stored import TakenBack
from tapeline.run.steps import CARRIED, TableStep

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Given:
    """The records that a table's batch starts from, in tape order, and those taken back."""

    rows: pa.Table  # the leaf that Spark reads; its ordinal says which record a row belongs to
    positions: pa.Array  # one per record
    causes: pa.Array | None = None  # behind the first table, inherited
    row_counts: Numbers | None = None  # rows per record, where records have several
    back: Sequence[TakenBack] = ()
    back_rows: pa.Table | None = None  # the rows that no longer count, as they were stored
    redriven: pa.Table | None = None  # the register rows of the last records, which come again
    dismissed: pa.Table | None = None  # the register rows of records that shall not come again

    @property
    def records(self) -> int:
        return len(self.positions)

    @property
    def again(self) -> int:
        """How many of the records, the last ones, have had a verdict before."""
        return self.redriven.num_rows if self.redriven is not None else 0


def tape_records(tape: pa.Table, source: str) -> Given:
    """The records of tape rows that are in tape order."""
    count = tape.num_rows
    ordinal = pa.array(np.arange(count, dtype=np.int64))
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), [source])
    part, at = (tape[name].combine_chunks() for name in ("part", "at"))
    positions = pa.StructArray.from_arrays(
        [names.cast(pa.string()), part, at], fields=list(POSITION)
    )
    return Given(tape.append_column("ordinal", ordinal), positions)


def kept_records(step: TableStep, stored: pa.Table) -> Given:
    """Kept rows of a register, in the order of their positions, as the steps behind read them."""
    where = stored["_position"].combine_chunks()
    first = stored["_row"].to_numpy() == 0
    ordinals = np.cumsum(first) - 1
    again = pa.array(["redrive"] * len(where), pa.string())
    return Given(
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
    """A table's rows as the steps behind it read them: `_position` carries what they pass on."""
    carried = pa.StructArray.from_arrays(
        [
            *[pc.struct_field(where, name) for name in ("source", "part", "at")],
            pa.array(ordinals, pa.int64()),
            causes,
            pa.array(np.full(len(where), sign, dtype=np.int32)),
        ],
        fields=list(CARRIED),
    )
    leaf = rows.select(step.columns.names).append_column("_position", carried)
    return leaf.cast(step.leaf_schema)


def with_acts(given: Given, again: Given, redriven: pa.Table, dismissed: pa.Table) -> Given:
    """A batch's records, and behind them those that come again."""
    rows = again.rows
    place = rows.schema.get_field_index("ordinal")
    numbers = np.arange(rows.num_rows, dtype=np.int64) + given.records
    if place >= 0:
        rows = rows.set_column(place, "ordinal", pa.array(numbers))
    else:
        rows = _renumbered(rows, given.records)
    counts = None
    if given.row_counts is not None or again.row_counts is not None:
        counts = np.concatenate([_counts(given), _counts(again)])
    return Given(
        pa.concat_tables([given.rows, rows.select(given.rows.column_names)]),
        pa.concat_arrays([given.positions, again.positions]),
        None if given.causes is None else pa.concat_arrays([given.causes, again.causes]),
        counts,
        given.back,
        given.back_rows,
        redriven,
        dismissed,
    )


def _counts(given: Given) -> Numbers:
    if given.row_counts is not None:
        return given.row_counts
    return np.ones(given.records, dtype=np.int64)


def _renumbered(rows: pa.Table, first: int) -> pa.Table:
    """The rows of carried records with their ordinals moved on."""
    position = rows["_position"].combine_chunks()
    arrays = [
        pc.add(position.field(f.name), first) if f.name == "ordinal" else position.field(f.name)
        for f in CARRIED
    ]
    moved = pa.StructArray.from_arrays(arrays, fields=list(CARRIED))
    return rows.set_column(rows.schema.get_field_index("_position"), "_position", moved)
