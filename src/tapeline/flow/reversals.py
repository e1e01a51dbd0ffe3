"""Verdicts that change: what stood is taken back as it was stored, never computed again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tapeline.books.position import position_of
from tapeline.flow.standing_rows import Reversal
from tapeline.flow.step_input import leaf_rows
from tapeline.flow.steps import TableStep


@dataclass(frozen=True)
class Reversals:
    """Verdicts that change: the old rows taken back as they were stored, the new ones."""

    register: pa.Table | None
    verdicts: Counter[str]
    back: list[Reversal]  # the kept ones among them, for downstream tables
    rows: pa.Table | None  # and their rows, for the summaries


def all_changes(*several: Reversals) -> Reversals:
    registers = [one.register for one in several if one.register is not None]
    rows = [one.rows for one in several if one.rows is not None]
    verdicts: Counter[str] = Counter()
    for one in several:
        verdicts.update(one.verdicts)
    return Reversals(
        pa.concat_tables(registers) if registers else None,
        verdicts,
        [item for one in several for item in one.back],
        pa.concat_tables(rows) if rows else None,
    )


def take_back(
    step: TableStep, found: pa.Table | None, batch: int, instead: str | None
) -> Reversals:
    """Rows that stood, with a minus, and their first one with another verdict instead."""
    verdicts: Counter[str] = Counter()
    if found is None or not found.num_rows:
        return Reversals(None, verdicts, [], None)
    count = found.num_rows
    numbers = pa.array(np.full(count, batch, dtype=np.int64))
    changed = {
        "_sign": pa.array(np.full(count, -1, dtype=np.int32)),
        "_cause": found["_why"],
        "_batch": numbers,
    }
    minus = _with(found, changed)
    parts = [minus]
    first = found["_row"].to_numpy() == 0
    words = found["_verdict"].to_pylist()
    for word in (w for w, once in zip(words, first, strict=True) if once):
        verdicts[word] -= 1
        if instead:
            verdicts[instead] += 1
    if instead:
        plus = {
            **changed,
            "_sign": pa.array(np.ones(count, dtype=np.int32)),
            "_verdict": pa.array([instead] * count, pa.string()),
        }
        parts.append(_with(found, plus).filter(pa.array(first)))
    counted = np.array([word == "kept" for word in words], dtype=np.bool_)
    lost = found.filter(pa.array(counted))
    back = [
        Reversal(position_of(where), number, why)
        for where, number, why, row in zip(
            lost["_position"].to_pylist(),
            lost["_batch"].to_pylist(),
            lost["_why"].to_pylist(),
            lost["_row"].to_pylist(),
            strict=True,
        )
        if row == 0
    ]
    register = pa.concat_tables(parts).select(step.register_schema.names)
    return Reversals(register.cast(step.register_schema), verdicts, back, _against(step, lost))


def _against(step: TableStep, lost: pa.Table) -> pa.Table:
    """Stored rows as the summaries read them, counting against."""
    where, why = lost["_position"].combine_chunks(), lost["_why"].combine_chunks()
    return leaf_rows(step, lost, where, np.arange(lost.num_rows, dtype=np.int64), why, -1)


def _with(rows: pa.Table, changed: dict[str, pa.Array]) -> pa.Table:
    for name, values in changed.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows
