"""What kind of problem a reason names, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tapeline.books.reasons import FAILS
from tapeline.declare import Table
from tapeline.plan import Plan

UNREADABLE, STEP, CONFLICT, RULE = "unreadable", "step", "conflict", "rule"
# What weighs most comes first: a record that cannot be read breaks no rules besides.
KINDS = (UNREADABLE, STEP, CONFLICT, RULE)
STEP_FAILS = re.compile(rf"\(\) {FAILS}\b|^the step makes several rows of this record\b")
REFUSED = re.compile(r"^the same key( and version)? was kept before with other content$")
# Rules that every table has: a key, a sequence, no time in the future.
OF_EVERY_TABLE = re.compile(r"^the (key|sequence) is missing: | in the future$")
CORRECT = "correct the record and redrive it"
RESEND = "ask the sender for a correct record"
DISMISS = "dismiss it"


@dataclass(frozen=True)
class ReasonKind:
    """The kind of a reason, where its rule or step is declared, and what people can do."""

    kind: str
    declared: str
    remedies: tuple[str, ...]


def kind_of(plan: Plan, table: str, sentence: str) -> str:
    """Whether a reason of a table is about a record, a step, a refused correction or a rule."""
    declared = plan.pipeline.tables[table]
    if any(sentence == one.sentence for one in declared.expectations):
        return RULE
    if STEP_FAILS.search(sentence):
        return STEP
    if REFUSED.search(sentence):
        return CONFLICT
    enters = declared.stream in plan.pipeline.sources
    return RULE if OF_EVERY_TABLE.search(sentence) or not enters else UNREADABLE


def kind_of_record(plan: Plan, table: str, sentences: Iterable[str]) -> str:
    """The kind that weighs most among the reasons of one record."""
    kinds = {kind_of(plan, table, sentence) for sentence in sentences}
    return next((kind for kind in KINDS if kind in kinds), RULE)


def explain(plan: Plan, table: str, sentence: str) -> ReasonKind:
    """What a reason means for the people who work on it."""
    declared = plan.pipeline.tables[table]
    kind = kind_of(plan, table, sentence)
    where = "" if kind in (UNREADABLE, CONFLICT) else _where(plan, declared, sentence)
    return ReasonKind(kind, where, tuple(_remedies(plan, declared, kind)))


def grouped(plan: Plan, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Quarantined records by kind, table and reason; the kind that weighs most comes first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        for sentence in record["reasons"]:
            key = (record["table"], sentence)
            if key not in found:
                said = explain(plan, *key)
                found[key] = {
                    "kind": said.kind,
                    "table": key[0],
                    "reason": sentence,
                    "count": 0,
                    "oldest": record["at"],
                    "newest": record["at"],
                    "declared": said.declared,
                    "remedies": list(said.remedies),
                }
            group = found[key]
            group["count"] += 1
            times = [at for at in (group["oldest"], group["newest"], record["at"]) if at]
            group["oldest"] = min(times, default=None)
            group["newest"] = max(times, default=None)
    return sorted(
        found.values(),
        key=lambda one: (KINDS.index(one["kind"]), -one["count"], one["table"], one["reason"]),
    )


def _where(plan: Plan, table: Table, sentence: str) -> str:
    """File and line of the step at fault, without the folders of this machine."""
    failing = sentence.partition("()")[0]
    step = plan.pipeline.summaries.get(failing) or plan.pipeline.tables.get(failing) or table
    file = re.split(r"[\\/]", step.where.file)[-1]
    return f"{step.name}() in {file}:{step.where.line}"


def _remedies(plan: Plan, table: Table, kind: str) -> list[str]:
    enters = table.stream in plan.pipeline.sources
    if kind == UNREADABLE:
        return [CORRECT, RESEND, DISMISS]
    if kind == CONFLICT:
        higher = ["ask the sender for a higher version"] if table.sequence_by else []
        return [*higher, DISMISS]
    correct = [CORRECT] if enters else ["ask the sender for a higher version"]
    if kind == STEP:
        return ["correct the reference data and redrive it", *correct, "fix the step", DISMISS]
    data = ["correct the reference data and redrive it"] if table.snapshots else []
    return [*data, *correct, "fix the rule", DISMISS]
