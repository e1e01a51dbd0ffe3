"""The register of a table: a verdict for every record of a batch, and the rows that count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.schemas import POSITION
from tapeline.declare.duration import parse_duration
from tapeline.errors import OperationError, TapelineBug
from tapeline.run.decode import FAULT_SEPARATOR, UNREADABLE
from tapeline.run.identity import CONFLICT, DUPLICATE, Identity, Records
from tapeline.run.steps import CARRIED, TableStep

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
BEGINNING = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Given:
    """The records that a table's batch starts from, in tape order."""

    rows: pa.Table  # the leaf that Spark reads; its ordinal says which record a row belongs to
    positions: pa.Array  # one per record
    causes: pa.Array | None = None  # behind the first table, inherited
    signs: pa.Array | None = None
    row_counts: Numbers | None = None  # rows per record, where records have several

    @property
    def records(self) -> int:
        return len(self.positions)


@dataclass
class Judged:
    """A table's batch: the register rows, what goes on to the steps behind it, and the counts."""

    register: pa.Table
    kept: Given
    verdicts: Counter[str]
    causes: Counter[str]
    reasons: Counter[str]
    warnings: Counter[str]
    clock: int
    identity: tuple[Records, Flags] | None = None


@dataclass
class Bench:
    """The work sheet of one batch: a verdict per record while the rules are applied."""

    records: int
    ordinal: Numbers  # the record of each row that the step made
    verdict: list[str | None] = field(default_factory=list)
    reasons: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.verdict = [None] * self.records
        self.first = _first_rows(self.ordinal, self.records)  # -1 where a record has no row

    def give(self, record: int, verdict: str, reasons: list[str]) -> None:
        if self.verdict[record] in (None, verdict):
            self.verdict[record] = verdict
            known = self.reasons.setdefault(record, [])
            known += [reason for reason in reasons if reason and reason not in known]

    def open(self) -> Flags:
        """The records that have no verdict yet."""
        return np.array([v is None for v in self.verdict], dtype=np.bool_)


def judge_batch(
    step: TableStep, given: Given, out: pa.Table, identity: Identity | None, clock: int, batch: int
) -> Judged:
    """Give every record of a batch its verdict, from what the table's step made of it."""
    position = out["_position"].combine_chunks()
    ordinal = _numbers(pc.struct_field(position, "ordinal"))
    bench = Bench(given.records, ordinal)
    _rule_verdicts(step, out, bench)
    _count_verdicts(step, given, bench)
    known = _identify(step, position, bench, identity)
    causes, clock = _causes(step, out, bench, given, clock)
    kept_records = bench.open()
    for record in np.flatnonzero(kept_records):
        bench.verdict[record] = "kept"
    warnings = _sentences(out["_warn"], kept_records[ordinal] if len(ordinal) else None)
    register = _register(step, given, out, bench, causes, batch)
    kept = _kept(step, out, ordinal, kept_records, given, causes)
    return Judged(
        register,
        kept,
        Counter(v for v in bench.verdict if v is not None),
        Counter(pc.filter(causes, pa.array(kept_records)).to_pylist()),
        Counter(reason for found in bench.reasons.values() for reason in found),
        warnings,
        clock,
        (known[0], kept_records[known[1]]) if known else None,
    )


def _rule_verdicts(step: TableStep, out: pa.Table, bench: Bench) -> None:
    """Faults and broken rules, found by Spark. What cannot be read breaks no rules besides."""
    position, ordinal = out["_position"].combine_chunks(), bench.ordinal
    unreadable: set[int] = set()
    if step.faults is not None:
        for row in _marked(pc.struct_field(position, "faults")):
            faults = position[row]["faults"].as_py().split(FAULT_SEPARATOR)
            bench.give(int(ordinal[row]), "quarantined", faults)
            if faults[0].startswith(UNREADABLE):
                unreadable.add(int(ordinal[row]))
    for row in _marked(out["_fail"]):
        if int(ordinal[row]) in unreadable:
            continue
        record = position[row].as_py()
        raise OperationError(
            f"{step.table.where}: {step.table.name}() must stop at a record that breaks "
            f"'{out['_fail'][row].as_py()}': {record['source']} part {record['part']} at "
            f"{record['at']}. Correct the rule or the record; nothing of this batch was decided."
        )
    for row in _marked(out["_quarantine"]):
        if int(ordinal[row]) not in unreadable:
            reasons = out["_quarantine"][row].as_py().split(FAULT_SEPARATOR)
            bench.give(int(ordinal[row]), "quarantined", reasons)
    for row in _marked(out["_drop"]):
        reasons = out["_drop"][row].as_py().split(FAULT_SEPARATOR)
        bench.give(int(ordinal[row]), "dropped", reasons)


def _count_verdicts(step: TableStep, given: Given, bench: Bench) -> None:
    """Records that a step left out, or multiplied without an explode."""
    counts = np.bincount(bench.ordinal, minlength=given.records)
    expected = given.row_counts if given.row_counts is not None else 1
    if not step.explodes:
        for several in np.flatnonzero(counts > expected).tolist():
            reason = "the step makes several rows of this record: a reference has repeated keys"
            bench.give(several, "quarantined", [reason])
    missing = np.flatnonzero((counts == 0) & bench.open())
    if not len(missing):
        return
    faults = _faults_of(step, given, missing)
    for record, text in zip(missing.tolist(), faults, strict=True):
        if text:
            bench.give(record, "quarantined", text.split(FAULT_SEPARATOR))
        else:
            bench.give(record, "dropped", ["left out by the step"])


def _faults_of(step: TableStep, given: Given, missing: Numbers) -> list[str]:
    if step.faults is None:
        return [""] * len(missing)
    rows = step.faults.run(given.rows.take(pa.array(missing)))
    found = pc.struct_field(rows["_position"].combine_chunks(), "faults").to_pylist()
    return [text or "" for text in found]


def _identify(
    step: TableStep, position: pa.StructArray, bench: Bench, identity: Identity | None
) -> tuple[Records, Numbers] | None:
    """The verdicts of identity; also what to remember once the batch is decided."""
    if identity is None:
        return None
    candidates = np.flatnonzero(bench.open())
    rows = pa.array(bench.first[candidates])
    keys = pc.struct_field(position, "key").take(rows)
    lacking = candidates[pc.is_null(keys).to_numpy(zero_copy_only=False)]
    for record in lacking.tolist():
        names = ", ".join(step.table.key)
        bench.give(record, "quarantined", [f"the key is missing: {names}"])
    if len(lacking):
        candidates = np.flatnonzero(bench.open())
        rows = pa.array(bench.first[candidates])
        keys = pc.struct_field(position, "key").take(rows)
    hashes = _numbers(pc.struct_field(position, "key_hash").take(rows))
    records = Records(keys, hashes, pc.struct_field(position, "content_hash").take(rows))
    verdicts = identity.judge(records)
    for record in candidates[verdicts == DUPLICATE].tolist():
        bench.give(record, "duplicate", [])
    for record in candidates[verdicts == CONFLICT].tolist():
        bench.give(record, "quarantined", ["the same key was kept before with other content"])
    return records, candidates


def _causes(
    step: TableStep, out: pa.Table, bench: Bench, given: Given, clock: int
) -> tuple[pa.Array, int]:
    """on_time or late for every record, by the highest time of all earlier ones on the tape."""
    if given.causes is not None:
        return given.causes, clock
    late = np.zeros(given.records, dtype=np.bool_)
    if step.table.time is not None:
        timed = [v in (None, "duplicate") for v in bench.verdict]
        records = np.flatnonzero(np.array(timed, dtype=np.bool_))
        column = out[step.table.time].take(pa.array(bench.first[records]))
        times = pc.fill_null(pc.cast(column, pa.int64()), BEGINNING).to_numpy()
        highest = np.maximum.accumulate(np.concatenate([[clock], times]))
        allowed = int(parse_duration(step.table.late_after).total_seconds() * 1_000_000)
        earlier = highest[:-1]
        late[records] = (earlier > BEGINNING) & (
            times < np.maximum(earlier, BEGINNING + allowed) - allowed
        )
        clock = int(highest[-1])
    words = pa.array(["on_time", "late"])
    return words.take(pa.array(late.astype(np.int8))), clock


def _register(
    step: TableStep,
    given: Given,
    out: pa.Table,
    bench: Bench,
    causes: pa.Array,
    batch: int,
) -> pa.Table:
    """One row per kept row, and one for every record that is not kept."""
    ordinal, first = bench.ordinal, bench.first
    verdicts = pa.array(bench.verdict, pa.string())
    kept = np.array([v == "kept" for v in bench.verdict], dtype=np.bool_)
    counting = np.flatnonzero(kept[ordinal]) if len(ordinal) else np.array([], dtype=np.int64)
    others = np.flatnonzero(~kept)
    # Rows in tape order: kept ones as the step made them, the others by their first row, if any.
    record = np.concatenate([ordinal[counting], others]).astype(np.int64)
    row = np.concatenate([counting, first[others]]).astype(np.int64)
    order = np.argsort(record, kind="stable")
    record, row = record[order], row[order]
    chosen = pa.array(row, mask=row < 0)
    columns = {name: out[name].take(chosen) for name in step.columns.names}
    places = pa.array(record)
    quarantined = pc.equal(verdicts, "quarantined").to_numpy(zero_copy_only=False)
    columns |= {
        "_position": given.positions.take(places),
        "_row": pa.array(_row_numbers(record), pa.int32()),
        "_verdict": verdicts.take(places),
        "_reasons": pa.array([bench.reasons.get(r, []) for r in range(given.records)],
                             pa.list_(pa.string())).take(places)
        if bench.reasons else pa.array([[]] * len(record), pa.list_(pa.string())),
        "_sign": (given.signs.take(places) if given.signs is not None
                  else pa.array(np.ones(len(record), dtype=np.int32))),
        "_cause": causes.take(places),
        "_batch": pa.array(np.full(len(record), batch, dtype=np.int64)),
        **_identity_columns(step, out, chosen, len(record)),
        "_raw": _raw(given, record, quarantined),
    }  # fmt: skip
    return pa.table(columns).select(step.register_schema.names).cast(step.register_schema)


def _identity_columns(
    step: TableStep, out: pa.Table, chosen: pa.Array, rows: int
) -> dict[str, pa.Array]:
    kinds = {"_key": pa.string(), "_key_hash": pa.int64(), "_content_hash": pa.binary()}
    if step.faults is None:
        return {name: pa.nulls(rows, kind) for name, kind in kinds.items()}
    position = out["_position"].combine_chunks()
    return {name: pc.struct_field(position, name[1:]).take(chosen) for name in kinds}


def _raw(given: Given, record: Numbers, quarantined: Flags) -> pa.Array:
    """The bytes of quarantined records; the others are found on the tape."""
    if "raw" not in given.rows.column_names:
        return pa.nulls(len(record), pa.binary())
    wanted = quarantined[record]
    return given.rows["raw"].take(pa.array(record, mask=~wanted))


def _kept(
    step: TableStep, out: pa.Table, ordinal: Numbers, kept: Flags, given: Given, causes: pa.Array
) -> Given:
    """What the steps behind this table read: its kept rows, their positions carried along."""
    rows = np.flatnonzero(kept[ordinal]) if len(ordinal) else np.array([], dtype=np.int64)
    old = ordinal[rows]
    renumbered = np.cumsum(kept) - 1
    ordinals = renumbered[old] if len(old) else old
    places = pa.array(old)
    signs = given.signs if given.signs is not None else pa.array(np.ones(given.records, np.int32))
    where = given.positions.take(places)
    carried = pa.StructArray.from_arrays(
        [
            *[pc.struct_field(where, name) for name in ("source", "part", "at")],
            pa.array(ordinals, pa.int64()),
            causes.take(places),
            signs.take(places),
        ],
        fields=list(CARRIED),
    )
    table = out.select(step.columns.names).take(pa.array(rows))
    table = table.append_column("_position", carried).cast(step.leaf_schema)
    mask = pa.array(kept)
    counts = np.bincount(ordinals, minlength=int(kept.sum())) if step.explodes else None
    return Given(
        table,
        given.positions.filter(mask),
        causes.filter(mask),
        signs.filter(mask),
        counts,
    )


def tape_records(tape: pa.Table, source: str) -> Given:
    """The records of tape rows that are in tape order."""
    count = tape.num_rows
    ordinal = pa.array(np.arange(count, dtype=np.int64))
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), [source])
    positions = pa.StructArray.from_arrays(
        [names.cast(pa.string()), _one(tape["part"]), _one(tape["at"])], fields=list(POSITION)
    )
    return Given(tape.append_column("ordinal", ordinal), positions)


def check_balance(name: str, given: Given, judged: Judged) -> None:
    """The verdicts add up to the input's records, or nothing is decided."""
    total = sum(judged.verdicts.values())
    if total != given.records or judged.kept.records != judged.verdicts["kept"]:
        raise TapelineBug(
            f"{name}: {given.records} records came in, the verdicts add up to {total} "
            f"({dict(judged.verdicts)}). Nothing of this batch was decided."
        )


def _first_rows(ordinal: Numbers, records: int) -> Numbers:
    """The first output row of each record, -1 where it has none."""
    first = np.full(records, -1, dtype=np.int64)
    first[ordinal[::-1]] = np.arange(len(ordinal) - 1, -1, -1)
    return first


def _row_numbers(record: Numbers) -> Numbers:
    """0, 1, 2... within each record; records are contiguous."""
    if not len(record):
        return record
    starts = np.flatnonzero(np.concatenate([[True], record[1:] != record[:-1]]))
    return np.arange(len(record)) - np.repeat(starts, np.diff(np.append(starts, len(record))))


def _sentences(column: pa.ChunkedArray, counting: Flags | None) -> Counter[str]:
    rows = [r for r in _marked(column) if counting is None or counting[r]]
    return Counter(s for row in rows for s in column[row].as_py().split(FAULT_SEPARATOR))


def _marked(column: pa.ChunkedArray | pa.Array) -> list[int]:
    """The rows whose text is not empty."""
    marked = pc.fill_null(pc.not_equal(column, ""), False)
    flags = (
        marked.to_numpy(zero_copy_only=False) if isinstance(marked, pa.Array) else marked.to_numpy()
    )
    return [int(row) for row in np.flatnonzero(flags)]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    numbers: Numbers = pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
