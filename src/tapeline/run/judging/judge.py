"""One table's batch, from what its step made to verdicts that add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tapeline.errors import TapelineBug
from tapeline.run.judging.bench import KEPT, OPEN, Bench
from tapeline.run.judging.causes import cause_again, cause_changes, cause_of_time
from tapeline.run.judging.changes import all_changes, take_back
from tapeline.run.judging.given import Given
from tapeline.run.judging.identity import Folded, Identity, Records
from tapeline.run.judging.known import identify
from tapeline.run.judging.rows import kept_rows, register_rows
from tapeline.run.judging.rules import apply_rules, compare_counts, sentences
from tapeline.run.judging.stored import Stored, TakenBack
from tapeline.run.steps import TableStep


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

    @classmethod
    def of(cls, step: TableStep, folder: Path, identity_keys: int) -> Memory:
        """All that a table's register says."""
        identity = Identity(folder, identity_keys) if step.table.key else None
        return cls(identity, Stored(folder, step.register_schema))

    def remember(self, batch: int, judged: Judged) -> None:
        """The batch is decided."""
        self.stored.remember(batch, judged.register)
        if self.identity is not None and judged.identity is not None:
            self.identity.remember(batch, *judged.identity)


def judge_batch(
    step: TableStep, given: Given, out: pa.Table, memory: Memory, clock: int, batch: int
) -> Judged:
    """Give every record of a batch its verdict, from what the table's step made of it."""
    bench = Bench(step, given, out)
    apply_rules(bench)
    compare_counts(bench)
    known = identify(bench, memory.identity)
    causes, clock = cause_of_time(bench, clock)
    bench.verdict[bench.has(OPEN)] = KEPT
    back = list(given.back)
    if known is not None:
        causes = cause_changes(causes, known)
        back = [
            TakenBack(one.version.position, one.version.batch, one.cause)
            for one in known.folded.replaced
        ]
    replaced = take_back(
        step, memory.stored.find(back), batch, "superseded" if known is not None else None
    )
    causes = cause_again(causes, given)
    changes = all_changes(
        replaced,
        take_back(step, given.redriven, batch, None),
        take_back(step, given.dismissed, batch, "dismissed"),
    )
    kept = bench.has(KEPT)
    register = register_rows(bench, causes, batch)
    return Judged(
        pa.concat_tables([register, changes.register]) if changes.register else register,
        kept_rows(bench, kept, causes, changes),
        _added(bench.count(), changes.verdicts),
        Counter(causes.filter(pa.array(kept)).to_pylist()),
        Counter(reason for found in bench.reasons.values() for reason in found),
        sentences(out["_warn"], kept[bench.ordinal]),
        clock,
        (known.records, known.folded) if known else None,
    )


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


def _added(one: Counter[str], other: Counter[str]) -> Counter[str]:
    """The sum of two counts; what falls below zero stays, unlike with '+'."""
    total = Counter(one)
    total.update(other)
    return Counter({word: count for word, count in total.items() if count})
