"""The body of a commits row: what it says of its batch and, in totals, of all before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

from tapeline.books import Staged
from tapeline.books.proof import hash_of
from tapeline.books.schemas import TAPE_LEAF
from tapeline.run.journal import Posted
from tapeline.run.judging import Given, Judged
from tapeline.run.tape import TapeBatch

Body = dict[str, Any]
Computed = dict[str, Judged | Posted]
# Sums of decimals of 38 digits, over any number of batches.
EXACT_DIGITS = 60


def body_of(
    before: Body,
    tapes: Mapping[str, Body],
    computed: Computed,
    staged: Sequence[Staged],
    references: Mapping[str, Any],
) -> Body:
    """What is known of a batch before it is decided; `before` is the body of the last one."""
    clocks = {n: r.clock for n, r in computed.items() if isinstance(r, Judged)}
    return {
        "tapes": dict(tapes),
        "positions": before.get("positions", {})
        | {source: {"last": item["last"]} for source, item in tapes.items()},
        "references": dict(references),
        "files": [item.facts() for item in staged],
        "tables": {name: _facts(result) for name, result in computed.items()},
        "clocks": before.get("clocks", {}) | clocks,
        "totals": _totals(before.get("totals", {}), computed),
    }


def tape_facts(batches: Sequence[TapeBatch], given: Given) -> Body:
    """The range of one tape, and the hash of its records."""
    more = [name for name in given.rows.column_names if name not in TAPE_LEAF.names]
    return {
        "first": batches[0].number,
        "last": batches[-1].number,
        "records": sum(batch.records for batch in batches),
        "arrived_at": batches[0].at.isoformat(),
        "listed": str(sum(batch.hash for batch in batches)),
        "hash": hash_of(given.rows.drop_columns(["ordinal"])),
    } | ({"columns": more} if more else {})


def _totals(before: dict[str, Any], computed: Computed) -> dict[str, Any]:
    """What every table's counts add up to, this batch included: readers need not add them up."""
    after = dict(before)
    for name, result in computed.items():
        known = before.get(name, {})
        facts = _facts(result)
        after[name] = {
            kind: _sum(known.get(kind, {}), facts[kind])
            for kind in ("verdicts", "causes", "reasons", "warnings")
            if kind in facts
        } | {
            kind: known.get(kind, 0) + facts[kind]
            for kind in ("entries", "counted", "left_out")
            if kind in facts
        }
        if isinstance(result, Posted):
            after[name]["measures"] = {
                measure: _exactly(known.get("measures", {}).get(measure, "0"), value)
                for measure, value in result.measures.items()
            }
    return after


def _exactly(one: str, other: str) -> str:
    with localcontext() as context:
        context.prec = EXACT_DIGITS
        return str(Decimal(one) + Decimal(other))


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return {word: count for word, count in total.items() if count}


def _facts(result: Judged | Posted) -> dict[str, Any]:
    """What a commits row says of one table's batch."""
    if isinstance(result, Posted):
        return {
            "rows": result.journal.num_rows,
            "entries": result.entries,
            "counted": result.counted,
            "left_out": result.left_out,
            "measures": result.measures,
        }
    return {
        "rows": result.register.num_rows,
        "verdicts": dict(result.verdicts),
        "causes": dict(result.causes),
        "reasons": dict(result.reasons),
        "warnings": dict(result.warnings),
    }
