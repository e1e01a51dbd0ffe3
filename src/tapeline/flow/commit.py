"""What a batch says of itself and, in totals, of all before it: its Commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tapeline.books import StagedFile, exact
from tapeline.books.commit import Commit, Counts, TapePosition, TapeRange
from tapeline.books.row_hash import hash_of
from tapeline.books.schemas import TAPE_LEAF
from tapeline.books.tape_batches import TapeBatch
from tapeline.flow.posting import SummaryResult
from tapeline.flow.step_input import StepInput
from tapeline.flow.table import TableResult

Computed = dict[str, TableResult | SummaryResult]


@dataclass(frozen=True)
class Taken:
    """The input of a batch."""

    tapes: Mapping[str, TapeRange]
    references: Mapping[str, int]
    acted: int


def commit_of(
    before: Commit,
    taken: Taken,
    computed: Computed,
    staged: Sequence[StagedFile],
    milliseconds: int,
) -> Commit:
    """What is known of a batch before it is decided; `before` is that of the last one."""
    clocks = {n: r.clock for n, r in computed.items() if isinstance(r, TableResult)}
    reached = {source: TapePosition(last=tape.last) for source, tape in taken.tapes.items()}
    counts = {name: _counts(result) for name, result in computed.items()}
    found = Commit(
        tapes=dict(taken.tapes),
        positions=before.positions | reached,
        references=dict(taken.references),
        files=list(staged),
        tables=counts,
        clocks=before.clocks | clocks,
        totals=added(before.totals, counts),
        acted=taken.acted,
        milliseconds=milliseconds,
    )
    if before.generation == 1:
        return found
    stood = {"generation": before.generation, "generations": before.generations}
    return found.model_copy(update=stood)


def tape_range(batches: Sequence[TapeBatch], given: StepInput) -> TapeRange:
    """The range of one tape, and the hash of its records."""
    found = TapeRange(
        first=batches[0].number,
        last=batches[-1].number,
        records=sum(batch.records for batch in batches),
        arrived_at=batches[0].at.isoformat(),
        listed=str(sum(batch.hash for batch in batches)),
        hash=hash_of(given.rows.drop_columns(["ordinal"])),
    )
    more = [name for name in given.rows.column_names if name not in TAPE_LEAF.names]
    return found.model_copy(update={"columns": more}) if more else found


def added(before: Mapping[str, Counts], counts: Mapping[str, Counts]) -> dict[str, Counts]:
    """What every table's counts add up to, this batch included: readers need not add them up."""
    nothing = Counts()
    return {**before} | {
        name: _sum(before.get(name, nothing), found) for name, found in counts.items()
    }


def _sum(one: Counts, other: Counts) -> Counts:
    if other.measures is None:
        return Counts(
            verdicts=_sum_words(one.verdicts, other.verdicts),
            causes=_sum_words(one.causes, other.causes),
            reasons=_sum_words(one.reasons, other.reasons),
            warnings=_sum_words(one.warnings, other.warnings),
        )
    known = one.measures or {}
    return Counts(
        entries=one.entries + other.entries,
        counted=one.counted + other.counted,
        left_out=one.left_out + other.left_out,
        measures={m: _exactly(known.get(m, "0"), value) for m, value in other.measures.items()},
    )


def _sum_words(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return {word: count for word, count in total.items() if count}


def _exactly(one: str, other: str) -> str:
    return exact.text(exact.add(Decimal(one), Decimal(other)))


def _counts(result: TableResult | SummaryResult) -> Counts:
    """What a commits row says of one table's batch."""
    if isinstance(result, SummaryResult):
        return Counts(
            rows=result.journal.num_rows,
            entries=result.entries,
            counted=result.counted,
            left_out=result.left_out,
            measures=result.measures,
        )
    found = Counts(
        rows=result.register.num_rows,
        verdicts=dict(result.verdicts),
        causes=dict(result.causes),
        reasons=dict(result.reasons),
        warnings=dict(result.warnings),
    )
    return found.model_copy(update={"records": result.records}) if result.split else found
