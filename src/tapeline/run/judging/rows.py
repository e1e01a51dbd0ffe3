"""The rows that a batch makes: of the register, and for the steps behind the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tapeline.run.judging.bench import CODES, KEPT, Bench, Facts, Flags
from tapeline.run.judging.changes import Changes
from tapeline.run.judging.given import Given, Numbers, leaf_rows


def register_rows(bench: Bench, causes: pa.Array, batch: int) -> pa.Table:
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
        "_row": pa.array(_row_numbers(record), pa.int32()),
        "_verdict": bench.words().take(places),
        "_reasons": _reasons(bench, record),
        "_sign": pa.array(np.ones(len(record), dtype=np.int32)),
        "_cause": causes.take(places),
        "_batch": pa.array(np.full(len(record), batch, dtype=np.int64)),
        **_identity_columns(bench.facts, places),
        "_raw": _raw(given, record, bench.has(CODES["quarantined"])),
    }
    return pa.table(columns).select(step.register_schema.names).cast(step.register_schema)


def kept_rows(bench: Bench, kept: Flags, causes: pa.Array, changes: Changes) -> Given:
    """What the steps behind this table read: its kept rows, their positions carried along."""
    step, given, ordinal = bench.step, bench.given, bench.ordinal
    rows = np.flatnonzero(kept[ordinal])
    old = ordinal[rows]
    renumbered = np.cumsum(kept) - 1
    ordinals = renumbered[old] if len(old) else old
    places = pa.array(old)
    table = leaf_rows(
        step,
        bench.out.select(step.columns.names).take(pa.array(rows)),
        given.positions.take(places),
        ordinals,
        causes.take(places),
    )
    mask = pa.array(kept)
    counts = np.bincount(ordinals, minlength=int(kept.sum())) if step.explodes else None
    return Given(
        table,
        given.positions.filter(mask),
        causes.filter(mask),
        counts,
        changes.back,
        changes.rows,
    )


def _row_numbers(record: Numbers) -> Numbers:
    """0, 1, 2... within each record; records are contiguous."""
    if not len(record):
        return record
    starts = np.flatnonzero(np.concatenate([[True], record[1:] != record[:-1]]))
    return np.arange(len(record)) - np.repeat(starts, np.diff(np.append(starts, len(record))))


def _reasons(bench: Bench, record: Numbers) -> pa.Array:
    lists: list[list[str]] = [[]] * len(record)
    if bench.reasons:
        lists = [bench.reasons.get(one, []) for one in record.tolist()]
    return pa.array(lists, pa.list_(pa.string()))


def _identity_columns(facts: Facts, places: pa.Array) -> dict[str, pa.Array]:
    kinds = {
        "_key": pa.string(),
        "_key_hash": pa.int64(),
        "_content_hash": pa.binary(),
        "_sequence": pa.int64(),
    }
    if not facts.arrives:
        return {name: pa.nulls(len(places), kind) for name, kind in kinds.items()}
    return {name: facts.of(name[1:]).take(places) for name in kinds}


def _raw(given: Given, record: Numbers, quarantined: Flags) -> pa.Array:
    """The bytes of quarantined records; the others are found on the tape."""
    if "raw" not in given.rows.column_names:
        return pa.nulls(len(record), pa.binary())
    wanted = quarantined[record]
    return given.rows["raw"].take(pa.array(record, mask=~wanted))
