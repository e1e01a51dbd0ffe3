"""The verdicts of a table's batch: pure functions over what its step made and what is stored.

`facts_of` applies the rules, which look at one record each. `verdicts` folds the records into what
is stored of their keys; what it says of a key depends on that key alone, so a batch may be cut by
key. Only lateness needs the order of the whole tape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.flow.causes import cause_again, cause_changes, cause_of_time
from tapeline.flow.key_index import Hashes
from tapeline.flow.key_verdicts import CONFLICT, KeyedRecords, KeyVerdicts, key_verdicts
from tapeline.flow.rules import apply_rules, compare_counts, quarantine_failed
from tapeline.flow.sheet import CODES, KEPT, OPEN, VerdictSheet, numbers
from tapeline.flow.split import split
from tapeline.flow.standing_rows import Reversal
from tapeline.flow.step_input import Numbers, StepInput, StepOutput
from tapeline.flow.steps import TableStep

# The verdicts of a key, in their own order.
BY_KEY = np.array(
    [CODES[word] for word in ("kept", "applied", "superseded", "duplicate", "quarantined")],
    dtype=np.int8,
)
NO_HASHES = np.array([], dtype=np.int64)


@dataclass(frozen=True)
class Facts:
    """The records of a batch after the rules, and of those that passed what identity needs."""

    sheet: VerdictSheet
    places: Numbers  # of the keyed records in the batch
    keyed: KeyedRecords | None

    @property
    def hashes(self) -> Hashes:
        """The hashes of the keys whose stored states decide."""
        return self.keyed.hashes if self.keyed is not None else NO_HASHES


@dataclass(frozen=True)
class Verdicts:
    """A verdict and a cause for every record, and what they take the place of."""

    sheet: VerdictSheet
    causes: pa.Array
    clock: int
    by_key: tuple[KeyedRecords, KeyVerdicts] | None  # to be remembered once it is decided

    @property
    def replaced(self) -> list[Reversal]:
        """The versions that stood until this batch."""
        found = self.by_key[1].replaced if self.by_key is not None else []
        return [Reversal(one.version.position, one.version.batch, one.cause) for one in found]


def facts_of(step: TableStep, given: StepInput, made: StepOutput) -> Facts:
    """What the rules say of each record, and the keys of those that passed them."""
    sheet = VerdictSheet.of(step, given, made)
    quarantine_failed(sheet, made)
    apply_rules(sheet)
    compare_counts(sheet)
    if step.splits:
        sheet = split(sheet)
    if not step.table.key:
        return Facts(sheet, NO_HASHES, None)
    places = _with_a_key(sheet)
    chosen, facts = pa.array(places), sheet.facts
    keyed = KeyedRecords(
        facts.of("key").take(chosen),
        numbers(facts.of("key_hash").take(chosen)),
        facts.of("content_hash").take(chosen),
        numbers(facts.of("sequence").take(chosen)),
        facts.deletes[places],
        sheet.given.positions.take(chosen),
    )
    return Facts(sheet, places, keyed)


def verdicts(facts: Facts, states: pa.Table, clock: int) -> Verdicts:
    """Give every record that is still open its verdict, by what is stored of its key."""
    sheet, keyed = facts.sheet, facts.keyed
    by_key = None if keyed is None else (keyed, key_verdicts(keyed, states))
    if by_key is not None:
        _give_by_key(sheet, facts.places, by_key[1])
    causes, clock = cause_of_time(sheet, clock)
    sheet.verdict[sheet.has(OPEN)] = KEPT
    if by_key is not None:
        causes = cause_changes(causes, facts.places, *by_key)
    return Verdicts(sheet, cause_again(causes, sheet.given), clock, by_key)


def _with_a_key(sheet: VerdictSheet) -> Numbers:
    """The open records that identity decides; those that lack what it needs are quarantined."""
    table, facts = sheet.step.table, sheet.facts
    keyless = pc.is_null(facts.of("key")).to_numpy(zero_copy_only=False)
    # By choice a record without a key is no other's repeat; a deletion needs one all the same.
    alone = keyless & ~facts.deletes if table.key_optional else np.zeros_like(keyless)
    unordered = pc.is_null(facts.of("sequence")).to_numpy(zero_copy_only=False) & ~alone
    for lacking, what, names in (
        (keyless & ~alone, "key", ", ".join(table.key)),
        (unordered, "sequence", table.sequence_by),
    ):
        for record in np.flatnonzero(lacking & sheet.has(OPEN)).tolist():
            sheet.give(record, "quarantined", [f"the {what} is missing: {names}"])
    return np.flatnonzero(sheet.has(OPEN) & ~alone)


def _give_by_key(sheet: VerdictSheet, places: Numbers, decided: KeyVerdicts) -> None:
    sheet.verdict[places] = BY_KEY[decided.verdicts]
    version = " and version" if sheet.step.table.sequence_by else ""
    for record in places[decided.verdicts == CONFLICT].tolist():
        sheet.reasons[record] = [f"the same key{version} was kept before with other content"]
