"""One table's batch: its verdicts, what they take back, and the rows that are stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tapeline.books.reasons import sentence_of
from tapeline.errors import TapelineBug
from tapeline.flow.identity import Identity
from tapeline.flow.key_verdicts import NO_STATES, KeyedRecords, KeyVerdicts
from tapeline.flow.reversals import all_changes, take_back
from tapeline.flow.rows import kept_rows, register_rows
from tapeline.flow.rules import sentences
from tapeline.flow.sheet import KEPT
from tapeline.flow.standing_rows import StandingRows
from tapeline.flow.step_input import StepInput, StepOutput
from tapeline.flow.steps import TableStep
from tapeline.flow.verdicts import facts_of, verdicts
from tapeline.words import counted


@dataclass
class TableResult:
    """Result of one table's batch: register rows, downstream input and counts."""

    register: pa.Table
    kept: StepInput
    verdicts: Counter[str]
    causes: Counter[str]
    reasons: Counter[str]
    warnings: Counter[str]
    clock: int
    records: int  # that came, without those that had a verdict before
    identity: tuple[KeyedRecords, KeyVerdicts] | None = None  # to be remembered
    split: bool = False  # its records are rows of messages


@dataclass(frozen=True)
class TableState:
    """What a table knows of earlier batches."""

    identity: Identity | None
    stored: StandingRows

    @classmethod
    def of(cls, step: TableStep, folder: Path, identity_keys: int) -> TableState:
        """All that a table's register says."""
        identity = Identity(folder, identity_keys, step.position) if step.table.key else None
        return cls(identity, StandingRows(folder, step.register_schema))

    def remember(self, batch: int, judged: TableResult) -> None:
        """The batch is decided."""
        self.stored.remember(batch, judged.register)
        if self.identity is not None and judged.identity is not None:
            self.identity.remember(batch, *judged.identity)


def decide_table(
    step: TableStep, given: StepInput, made: StepOutput, memory: TableState, clock: int, batch: int
) -> TableResult:
    """Give every record of a batch its verdict, and find what no longer counts."""
    facts = facts_of(step, given, made)
    keyed = memory.identity is not None
    states = memory.identity.states(facts.hashes) if memory.identity is not None else NO_STATES
    decided = verdicts(facts, states, clock)
    sheet, given, causes = decided.sheet, decided.sheet.given, decided.causes
    back = decided.replaced if keyed else list(given.back)
    changes = all_changes(
        take_back(step, memory.stored.find(back), batch, "superseded" if keyed else None),
        take_back(step, given.redriven, batch, None),
        take_back(step, given.dismissed, batch, "dismissed"),
    )
    kept = sheet.has(KEPT)
    register = register_rows(sheet, causes, batch)
    return TableResult(
        pa.concat_tables([register, changes.register]) if changes.register else register,
        kept_rows(sheet, kept, causes, changes),
        _added(sheet.count(), changes.verdicts),
        Counter(causes.filter(pa.array(kept)).to_pylist()),
        Counter(sentence_of(one) for found in sheet.reasons.values() for one in found),
        sentences(sheet.out["_warn"], kept[sheet.ordinal]),
        decided.clock,
        given.net_records,
        decided.by_key,
        step.splits,
    )


def check_balance(name: str, judged: TableResult) -> None:
    """The verdicts add up to the input's records, or nothing is decided."""
    total = sum(judged.verdicts.values())
    records = judged.records
    kept = judged.kept.records - len(judged.kept.back)
    if total != records or kept != judged.verdicts["kept"]:
        raise TapelineBug(
            f"{name}: {counted(records, 'record')} came in, but the verdicts add up to {total} "
            f"({dict(judged.verdicts)}). This batch was not committed."
        )


def _added(one: Counter[str], other: Counter[str]) -> Counter[str]:
    """The sum of two counts; what falls below zero stays, unlike with '+'."""
    total = Counter(one)
    total.update(other)
    return Counter({word: count for word, count in total.items() if count})
