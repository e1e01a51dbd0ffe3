"""A table that is not built again, as input of steps that are: its stored rows, by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.position import position_of
from tapeline.flow.standing_rows import Reversal
from tapeline.flow.step_input import StepInput, leaf_rows
from tapeline.flow.steps import TableStep
from tapeline.store.duckdb import Connection, connect, register_table

KEPT = "_verdict = 'kept' and _batch between {} and {}"


def stored_inputs(
    step: TableStep, folder: Path, batches: tuple[int, int]
) -> Iterator[tuple[int, StepInput]]:
    """What a table gave to downstream steps in some batches; those without rows are left out."""
    with connect() as connection:
        if not register_table(connection, "stored", folder, batches):
            return
        # In the order of the tape; what was sent again came after that.
        rows = connection.sql(
            f"select * from stored where {KEPT.format(*batches)} "
            "order by _batch, _cause = 'redrive' and _sign > 0, _position, _row"
        ).to_arrow_table()
        held_in = _held_in(connection, folder, batches)
    rows = rows.select(step.register_schema.names).cast(step.register_schema)
    numbers = rows["_batch"].to_numpy()
    for batch in np.unique(numbers).tolist():
        low, high = np.searchsorted(numbers, [batch, batch + 1])
        yield batch, _input(step, rows.slice(low, high - low), held_in)


def _held_in(
    connection: Connection, folder: Path, batches: tuple[int, int]
) -> dict[tuple[object, int], int]:
    """The batch that a row is stored in, by its position and the batch that takes it back."""
    back = f"select * from stored where {KEPT.format(*batches)} and _sign < 0 and _row = 0"
    (count,) = connection.execute(f"select count(*) from ({back})").fetchall()
    if not count[0] or not register_table(connection, "all_stored", folder, (0, batches[1])):
        return {}
    rows = connection.sql(
        f"select back._position, back._batch, max(held._batch) as held from ({back}) back "
        "join all_stored held on held._position = back._position and held._batch < back._batch "
        "and held._verdict = 'kept' and held._sign > 0 and held._row = 0 group by all"
    ).to_arrow_table()
    return {(position_of(row["_position"]), row["_batch"]): row["held"] for row in rows.to_pylist()}


def _input(step: TableStep, rows: pa.Table, held_in: dict[tuple[object, int], int]) -> StepInput:
    counts = pc.greater(rows["_sign"], 0)
    kept, lost = rows.filter(counts), rows.filter(pc.invert(counts))
    first = kept["_row"].to_numpy() == 0
    if step.splits:
        first = np.ones(kept.num_rows, dtype=np.bool_)
    ordinals = np.cumsum(first) - 1
    several = step.explodes and not step.splits
    where, causes = kept["_position"].combine_chunks(), kept["_cause"].combine_chunks()
    back = [
        Reversal(position_of(place), held_in[position_of(place), batch], why)
        for place, batch, why, row in zip(
            *(lost[name].to_pylist() for name in ("_position", "_batch", "_cause", "_row")),
            strict=True,
        )
        if row == 0
    ]
    return StepInput(
        leaf_rows(step, kept, where, ordinals, causes),
        where.filter(pa.array(first)),
        causes.filter(pa.array(first)),
        np.bincount(ordinals, minlength=int(first.sum())) if several else None,
        back,
        _against(step, lost) if lost.num_rows else None,
    )


def _against(step: TableStep, lost: pa.Table) -> pa.Table:
    where, why = lost["_position"].combine_chunks(), lost["_cause"].combine_chunks()
    return leaf_rows(step, lost, where, np.arange(lost.num_rows, dtype=np.int64), why, -1)
