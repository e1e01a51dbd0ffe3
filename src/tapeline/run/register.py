"""The register of a table: a verdict for every record of a batch, and the rows that count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.schemas import POSITION, VERDICTS
from tapeline.declare.duration import parse_duration
from tapeline.errors import OperationError, TapelineBug
from tapeline.run.cells import FAULT_SEPARATOR
from tapeline.run.decode import UNREADABLE
from tapeline.run.identity import CONFLICT, Folded, Identity, Records
from tapeline.run.steps import CARRIED, TableStep
from tapeline.run.stored import Stored, TakenBack

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
BEGINNING = np.iinfo(np.int64).min
# A record's verdict while it is found out, as a number: 0 is none yet.
WORDS = ("", *VERDICTS)
CODES = {word: code for code, word in enumerate(WORDS)}
OPEN, KEPT = CODES[""], CODES["kept"]
# Identity's answers, in its own order.
IDENTIFIED = np.array(
    [CODES[word] for word in ("kept", "applied", "superseded", "duplicate", "quarantined")],
    dtype=np.int8,
)
CAUSES = ("on_time", "late", "correction", "cancellation", "redrive")


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
    identity: tuple[Records, Folded] | None = None


@dataclass(frozen=True)
class Memory:
    """What a table knows of earlier batches."""

    identity: Identity | None
    stored: Stored

    def remember(self, batch: int, judged: Judged) -> None:
        """The batch is decided."""
        self.stored.remember(batch, judged.register)
        if self.identity is not None and judged.identity is not None:
            self.identity.remember(batch, *judged.identity)


class Bench:
    """The work sheet of one batch: a verdict per record while the rules are applied."""

    def __init__(self, step: TableStep, given: Given, out: pa.Table) -> None:
        self.step, self.given, self.out = step, given, out
        position = out["_position"].combine_chunks()
        self.ordinal = _numbers(pc.struct_field(position, "ordinal"))  # the record of each row
        self.first = _first_rows(self.ordinal, given.records)  # -1 where a record has no row
        self.facts = _Facts(step, given, self.first, position)
        self.verdict = np.zeros(given.records, dtype=np.int8)
        self.reasons: dict[int, list[str]] = {}

    def give(self, record: int, verdict: str, reasons: list[str]) -> None:
        if self.verdict[record] in (OPEN, CODES[verdict]):
            self.verdict[record] = CODES[verdict]
            known = self.reasons.setdefault(record, [])
            known += [reason for reason in reasons if reason and reason not in known]

    def has(self, code: int) -> Flags:
        """The records that have a verdict; OPEN: those that have none yet."""
        flags: Flags = self.verdict == code
        return flags

    def words(self) -> pa.Array:
        return pa.array(WORDS).take(pa.array(self.verdict))

    def count(self) -> Counter[str]:
        counts = np.bincount(self.verdict, minlength=len(WORDS)).tolist()
        return Counter({word: n for word, n in zip(WORDS, counts, strict=True) if n})


def judge_batch(
    step: TableStep, given: Given, out: pa.Table, memory: Memory, clock: int, batch: int
) -> Judged:
    """Give every record of a batch its verdict, from what the table's step made of it."""
    bench = Bench(step, given, out)
    _rule_verdicts(bench)
    _count_verdicts(bench)
    known = _identify(bench, memory.identity)
    causes, clock = _causes(bench, clock)
    bench.verdict[bench.has(OPEN)] = KEPT
    back = list(given.back)
    if known is not None:
        causes = _caused(causes, known)
        back = [
            TakenBack(one.version.position, one.version.batch, one.cause)
            for one in known.folded.replaced
        ]
    replaced = _take_back(
        step, memory.stored.find(back), batch, "superseded" if known is not None else None
    )
    causes = _again(causes, given)
    changes = _all_changes(
        replaced,
        _take_back(step, given.redriven, batch, None),
        _take_back(step, given.dismissed, batch, "dismissed"),
    )
    kept = bench.has(KEPT)
    register = _register(bench, causes, batch)
    return Judged(
        pa.concat_tables([register, changes.register]) if changes.register else register,
        _kept(bench, kept, causes, changes),
        _added(bench.count(), changes.verdicts),
        Counter(causes.filter(pa.array(kept)).to_pylist()),
        Counter(reason for found in bench.reasons.values() for reason in found),
        _sentences(out["_warn"], kept[bench.ordinal]),
        clock,
        (known.records, known.folded) if known else None,
    )


class _Facts:
    """What decoding found out about each record, also of those that the step left out."""

    def __init__(
        self, step: TableStep, given: Given, row: Numbers, position: pa.StructArray
    ) -> None:
        self.arrives = step.faults is not None
        self.missing = np.flatnonzero(row < 0)
        self.of_rows = position
        if self.arrives and len(self.missing):
            left_out = step.explain(given.rows.take(pa.array(self.missing)))
            found = left_out["_position"].combine_chunks()
            row = row.copy()
            row[self.missing] = len(position) + np.arange(len(self.missing))
            position = pa.concat_arrays([position, found])
        self._position, self._row = position, pa.array(row, mask=row < 0)
        self.deletes = np.zeros(len(row), dtype=np.bool_)  # the records that take their key out
        if step.table.apply_as_deletes:
            self.deletes = pc.fill_null(self.of("deletes"), False).to_numpy(zero_copy_only=False)

    def of(self, name: str) -> pa.Array:
        """A fact of every record."""
        return pc.struct_field(self._position, name).take(self._row)


def _rule_verdicts(bench: Bench) -> None:
    """Faults and broken rules, found by Spark.

    What cannot be read breaks no rules besides; nor does a deletion, of which only the key counts.
    """
    step, out, position, ordinal = bench.step, bench.out, bench.facts.of_rows, bench.ordinal
    exempt = set(np.flatnonzero(bench.facts.deletes).tolist())
    if bench.facts.arrives:
        for row in _marked(pc.struct_field(position, "faults")):
            faults = position[row]["faults"].as_py().split(FAULT_SEPARATOR)
            bench.give(int(ordinal[row]), "quarantined", faults)
            if faults[0].startswith(UNREADABLE):
                exempt.add(int(ordinal[row]))
    for row in _marked(out["_fail"]):
        if int(ordinal[row]) in exempt:
            continue
        record = position[row].as_py()
        raise OperationError(
            f"{step.table.where}: {step.table.name}() must stop at a record that breaks "
            f"'{out['_fail'][row].as_py()}': {record['source']} part {record['part']} at "
            f"{record['at']}. Correct the rule or the record; nothing of this batch was decided."
        )
    for column, verdict in (("_quarantine", "quarantined"), ("_drop", "dropped")):
        for row in _marked(out[column]):
            if int(ordinal[row]) not in exempt:
                reasons = out[column][row].as_py().split(FAULT_SEPARATOR)
                bench.give(int(ordinal[row]), verdict, reasons)


def _count_verdicts(bench: Bench) -> None:
    """Records that a step left out, or multiplied without an explode."""
    given, facts = bench.given, bench.facts
    counts = np.bincount(bench.ordinal, minlength=given.records)
    expected = given.row_counts if given.row_counts is not None else 1
    if not bench.step.explodes:
        for several in np.flatnonzero(counts > expected).tolist():
            reason = "the step makes several rows of this record: a reference has repeated keys"
            bench.give(several, "quarantined", [reason])
    if not len(facts.missing):
        return
    places = pa.array(facts.missing)
    faults = facts.of("faults").take(places).to_pylist() if facts.arrives else []
    for place, record in enumerate(facts.missing.tolist()):
        if faults and faults[place]:
            bench.give(record, "quarantined", faults[place].split(FAULT_SEPARATOR))
        elif not facts.deletes[record]:
            bench.give(record, "dropped", ["left out by the step"])


@dataclass(frozen=True)
class _Known:
    """What identity found out of the records that passed every rule."""

    places: Numbers  # of the records in the batch
    records: Records
    folded: Folded


def _identify(bench: Bench, identity: Identity | None) -> _Known | None:
    """The verdicts of identity; also what to remember once the batch is decided."""
    if identity is None:
        return None
    step, facts = bench.step, bench.facts
    keys, sequences = facts.of("key"), facts.of("sequence")
    for found, names in ((keys, ", ".join(step.table.key)), (sequences, step.table.sequence_by)):
        lacking = pc.is_null(found).to_numpy(zero_copy_only=False) & bench.has(OPEN)
        what = "key" if found is keys else "sequence"
        for record in np.flatnonzero(lacking).tolist():
            bench.give(record, "quarantined", [f"the {what} is missing: {names}"])
    places = np.flatnonzero(bench.has(OPEN))
    chosen = pa.array(places)
    records = Records(
        keys.take(chosen),
        _numbers(facts.of("key_hash").take(chosen)),
        facts.of("content_hash").take(chosen),
        _numbers(sequences.take(chosen)),
        facts.deletes[places],
        bench.given.positions.take(chosen),
    )
    folded = identity.judge(records)
    bench.verdict[places] = IDENTIFIED[folded.verdicts]
    for record in places[folded.verdicts == CONFLICT].tolist():
        version = " and version" if step.table.sequence_by else ""
        bench.reasons[record] = [f"the same key{version} was kept before with other content"]
    return _Known(places, records, folded)


def _causes(bench: Bench, clock: int) -> tuple[pa.Array, int]:
    """on_time or late for every record, by the highest time of all earlier ones on the tape."""
    step, out, given = bench.step, bench.out, bench.given
    if given.causes is not None:
        return given.causes, clock
    late = np.zeros(given.records, dtype=np.bool_)
    if step.table.time is not None:
        counted = [CODES[word] for word in ("", "kept", "superseded", "duplicate")]
        fresh = np.arange(given.records) < given.records - given.again
        records = np.flatnonzero(np.isin(bench.verdict, counted) & (bench.first >= 0) & fresh)
        column = out[step.table.time].take(pa.array(bench.first[records]))
        times = pc.fill_null(pc.cast(column, pa.int64()), BEGINNING).to_numpy()
        highest = np.maximum.accumulate(np.concatenate([[clock], times]))
        allowed = int(parse_duration(step.table.late_after).total_seconds() * 1_000_000)
        earlier = highest[:-1]
        late[records] = (earlier > BEGINNING) & (
            times < np.maximum(earlier, BEGINNING + allowed) - allowed
        )
        clock = int(highest[-1])
    return pa.array(CAUSES).take(pa.array(late.astype(np.int8))), clock


def _again(causes: pa.Array, given: Given) -> pa.Array:
    """Records that come again say so, whatever they do."""
    if not given.again:
        return causes
    again = pa.array(["redrive"] * given.again, pa.string())
    return pa.concat_arrays([causes.slice(0, given.records - given.again), again])


def _caused(causes: pa.Array, known: _Known) -> pa.Array:
    """A record that changes what stood, or takes it out, says so instead of its lateness."""
    changes = known.folded.changes
    if not changes.any():
        return causes
    codes = pc.index_in(causes, pa.array(CAUSES)).to_numpy(zero_copy_only=False).astype(np.int8)
    deletes = known.records.deletes[changes]
    codes[known.places[changes]] = np.where(
        deletes, CAUSES.index("cancellation"), CAUSES.index("correction")
    )
    return pa.array(CAUSES).take(pa.array(codes))


@dataclass(frozen=True)
class _Changes:
    """Verdicts that change: the old rows taken back as they were stored, the new ones."""

    register: pa.Table | None
    verdicts: Counter[str]
    back: list[TakenBack]  # the kept ones among them, for the tables behind
    rows: pa.Table | None  # and their rows, for the summaries


def _all_changes(*several: _Changes) -> _Changes:
    registers = [one.register for one in several if one.register is not None]
    rows = [one.rows for one in several if one.rows is not None]
    verdicts: Counter[str] = Counter()
    for one in several:
        verdicts.update(one.verdicts)
    return _Changes(
        pa.concat_tables(registers) if registers else None,
        verdicts,
        [item for one in several for item in one.back],
        pa.concat_tables(rows) if rows else None,
    )


def _take_back(
    step: TableStep, found: pa.Table | None, batch: int, instead: str | None
) -> _Changes:
    """Rows that stood, with a minus, and their first one with another verdict instead."""
    verdicts: Counter[str] = Counter()
    if found is None or not found.num_rows:
        return _Changes(None, verdicts, [], None)
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
        TakenBack((where["source"], where["part"], where["at"]), number, why)
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
    return _Changes(register.cast(step.register_schema), verdicts, back, _leaf_rows(step, lost))


def _leaf_rows(step: TableStep, lost: pa.Table) -> pa.Table:
    """Stored rows as the summaries read them, counting against."""
    where = lost["_position"].combine_chunks()
    count = lost.num_rows
    carried = pa.StructArray.from_arrays(
        [
            *[pc.struct_field(where, name) for name in ("source", "part", "at")],
            pa.array(np.arange(count, dtype=np.int64)),
            _one(lost["_why"]),
            pa.array(np.full(count, -1, dtype=np.int32)),
        ],
        fields=list(CARRIED),
    )
    rows = lost.select(step.columns.names).append_column("_position", carried)
    return rows.cast(step.leaf_schema)


def _with(rows: pa.Table, changed: dict[str, pa.Array]) -> pa.Table:
    for name, values in changed.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def _added(one: Counter[str], other: Counter[str]) -> Counter[str]:
    """The sum of two counts; what falls below zero stays, unlike with '+'."""
    total = Counter(one)
    total.update(other)
    return Counter({word: count for word, count in total.items() if count})


def _register(bench: Bench, causes: pa.Array, batch: int) -> pa.Table:
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


def _reasons(bench: Bench, record: Numbers) -> pa.Array:
    lists: list[list[str]] = [[]] * len(record)
    if bench.reasons:
        lists = [bench.reasons.get(one, []) for one in record.tolist()]
    return pa.array(lists, pa.list_(pa.string()))


def _identity_columns(facts: _Facts, places: pa.Array) -> dict[str, pa.Array]:
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


def _kept(bench: Bench, kept: Flags, causes: pa.Array, changes: _Changes) -> Given:
    """What the steps behind this table read: its kept rows, their positions carried along."""
    step, given, ordinal = bench.step, bench.given, bench.ordinal
    rows = np.flatnonzero(kept[ordinal])
    old = ordinal[rows]
    renumbered = np.cumsum(kept) - 1
    ordinals = renumbered[old] if len(old) else old
    places = pa.array(old)
    where = given.positions.take(places)
    carried = pa.StructArray.from_arrays(
        [
            *[pc.struct_field(where, name) for name in ("source", "part", "at")],
            pa.array(ordinals, pa.int64()),
            causes.take(places),
            pa.array(np.ones(len(old), dtype=np.int32)),
        ],
        fields=list(CARRIED),
    )
    table = bench.out.select(step.columns.names).take(pa.array(rows))
    table = table.append_column("_position", carried).cast(step.leaf_schema)
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
    position = _one(rows["_position"])
    arrays = [
        pc.add(position.field(f.name), first) if f.name == "ordinal" else position.field(f.name)
        for f in CARRIED
    ]
    moved = pa.StructArray.from_arrays(arrays, fields=list(CARRIED))
    return rows.set_column(rows.schema.get_field_index("_position"), "_position", moved)


def kept_records(step: TableStep, stored: pa.Table) -> Given:
    """Kept rows of a register, in the order of their positions, as the steps behind read them."""
    where = _one(stored["_position"])
    first = stored["_row"].to_numpy() == 0
    ordinals = np.cumsum(first) - 1
    carried = pa.StructArray.from_arrays(
        [
            *[pc.struct_field(where, name) for name in ("source", "part", "at")],
            pa.array(ordinals, pa.int64()),
            pa.array(["redrive"] * len(where), pa.string()),
            pa.array(np.ones(len(where), dtype=np.int32)),
        ],
        fields=list(CARRIED),
    )
    rows = stored.select(step.columns.names).append_column("_position", carried)
    return Given(
        rows.cast(step.leaf_schema),
        where.filter(pa.array(first)),
        pa.array(["redrive"] * int(first.sum()), pa.string()),
        np.bincount(ordinals, minlength=int(first.sum())) if step.explodes else None,
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
    records = given.records - len(given.back) - given.again
    kept = judged.kept.records - len(judged.kept.back)
    if total != records or kept != judged.verdicts["kept"]:
        raise TapelineBug(
            f"{name}: {records} records came in, the verdicts add up to {total} "
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
