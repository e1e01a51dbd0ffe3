"""The rows that a batch makes: of the register, and for downstream steps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tapeline.flow.reversals import Reversals
from tapeline.flow.sheet import CODES, KEPT, DecodedFacts, Flags, VerdictSheet
from tapeline.flow.split import numbered
from tapeline.flow.step_input import Numbers, StepInput, leaf_rows


def register_rows(bench: VerdictSheet, causes: pa.Array, batch: int) -> pa.Table:
    """One row per kept row, and one for every record that is not kept."""
    step, given, out = bench.step, bench.given, bench.out
    ordinal, first = bench.ordinal, bench.first
    kept = bench.has(KEPT)
    counting = np.flatnonzero(kept[ordinal])
    others = np.flatnonzero(~kept)
    # Rows in tape order: kept ones as the step made them, the others by their first row, if any.
    record = np.concatenate([ordinal[counting], others]).astype(np.int64)
    row = np.concatenate([counting, first[others]]).astype(np.int64)
    order = np.argsort(record, kind="stable")
    record, row = record[order], row[order]
    chosen = pa.array(row, mask=row < 0)
    columns = {name: out[name].take(chosen) for name in step.columns.names}
    places = pa.array(record)
    columns |= {
        "_position": given.positions.take(places),
        "_row": pa.array(numbered(record), pa.int32()),
        "_verdict": bench.words().take(places),
        "_reasons": _reasons(bench, record),
        "_sign": pa.array(np.ones(len(record), dtype=np.int32)),
        "_cause": causes.take(places),
        "_batch": pa.array(np.full(len(record), batch, dtype=np.int64)),
        **_identity_columns(bench.facts, places),
        "_raw": _raw(bench, record),
    }
    return pa.table(columns).select(step.register_schema.names).cast(step.register_schema)


def kept_rows(bench: VerdictSheet, kept: Flags, causes: pa.Array, changes: Reversals) -> StepInput:
    """Input of downstream steps: the kept rows with their positions."""
    step, given, ordinal = bench.step, bench.given, bench.ordinal
    renumbered = np.cumsum(kept) - 1
    ordinals = renumbered[ordinal[kept[ordinal]]]
    superseded = bench.has(CODES["superseded"]) & ~bench.facts.deletes
    mask = pa.array(kept)
    several = step.explodes and not step.splits
    counts = np.bincount(ordinals, minlength=int(kept.sum())) if several else None
    return StepInput(
        _leaf(bench, kept, causes),
        given.positions.filter(mask),
        causes.filter(mask),
        counts,
        changes.back,
        changes.rows,
        # Whether a record is sound must not depend on a higher version in the same batch.
        _leaf(bench, superseded, causes, 0) if superseded.any() else None,
    )


def _leaf(bench: VerdictSheet, chosen: Flags, causes: pa.Array, sign: int = 1) -> pa.Table:
    """The rows of some records as input of downstream steps."""
    rows = np.flatnonzero(chosen[bench.ordinal])
    old = bench.ordinal[rows]
    places = pa.array(old)
    return leaf_rows(
        bench.step,
        bench.out.select(bench.step.columns.names).take(pa.array(rows)),
        bench.given.positions.take(places),
        (np.cumsum(chosen) - 1)[old],
        causes.take(places),
        sign,
    )


def _reasons(bench: VerdictSheet, record: Numbers) -> pa.Array:
    lists: list[list[str]] = [[]] * len(record)
    if bench.reasons:
        lists = [bench.reasons.get(one, []) for one in record.tolist()]
    return pa.array(lists, pa.list_(pa.string()))


def _identity_columns(facts: DecodedFacts, places: pa.Array) -> dict[str, pa.Array]:
    kinds = {
        "_key": pa.string(),
        "_key_hash": pa.int64(),
        "_content_hash": pa.binary(),
        "_sequence": pa.int64(),
    }
    if not facts.arrives:
        return {name: pa.nulls(len(places), kind) for name, kind in kinds.items()}
    return {name: facts.of(name[1:]).take(places) for name in kinds}


def _raw(bench: VerdictSheet, record: Numbers) -> pa.Array:
    """The bytes of quarantined records; the others are found on the tape."""
    rows = bench.given.rows
    if "_position" in rows.column_names:  # another table's rows, which may have a 'raw'
        return pa.nulls(len(record), pa.binary())
    wanted = bench.has(CODES["quarantined"])[record]
    return rows["raw"].take(pa.array(bench.message[record], mask=~wanted))
