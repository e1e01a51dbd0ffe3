"""A dry run of a redrive: what each record would become, and which numbers would move."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tapeline.books import Books
from tapeline.books.operator import REDRIVE, Act
from tapeline.books.position import parse_position, position_of
from tapeline.books.reasons import worded
from tapeline.books.schemas import JOURNAL
from tapeline.books.tape import Tape
from tapeline.flow.flow import Flow
from tapeline.flow.posting import SummaryResult
from tapeline.flow.table import TableResult
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.spark.compile import compiler
from tapeline.spark.queries import needs_of
from tapeline.spark.session import build_session
from tapeline.store.lock import WriterLock

Row = dict[str, Any]
OWN = {name for name, _ in JOURNAL} - {"_entries"}


def rehearse(
    plan: Plan, settings: Settings, books: Books, rows: Sequence[Row], record: bytes | None
) -> Row:
    """Compute the redrive of quarantined records and throw the result away.

    It needs the pipeline's lock: a flow at work would change what it looks at.
    """
    lock = WriterLock(books.layout.home)
    try:
        session = build_session(settings, plan.name, needs_of(plan), short=True)
        lock.enter_jvm(session)
        tapes = {n: Tape(books.layout, n, _now) for n in plan.pipeline.sources}
        flow = Flow(compiler(session, plan, settings), plan, settings, tapes, _now)
        acts = [
            Act(REDRIVE, r["table"], parse_position(r["position"]), r["batch"], record)
            for r in rows
        ]
        computed = flow.rehearse(acts)
        flow.close()
    finally:
        lock.release()
    records = [
        outcome
        for row in rows
        if isinstance(judged := computed.get(row["table"]), TableResult)
        for outcome in _outcomes(judged.register, row)
    ]
    changes = [
        {"summary": name, "change": {k: str(v) for k, v in row.items() if k not in OWN}}
        for name, result in computed.items()
        if isinstance(result, SummaryResult)
        for row in result.journal.to_pylist()
    ]
    return {"records": records, "changes": changes}


def _outcomes(register: pa.Table, row: Row) -> list[Row]:
    """What one record would become; of a message whose rows are records, every row."""
    wanted = parse_position(row["position"])
    found = [
        {
            "position": place.text,
            "table": row["table"],
            "verdict": one["_verdict"],
            "reasons": list(map(worded, one["_reasons"])),
        }
        for one in register.to_pylist()
        if one["_sign"] > 0 and one["_row"] == 0
        if wanted in ((place := position_of(one["_position"])), place.whole)
    ]
    return found or [
        {"position": row["position"], "table": row["table"], "verdict": "", "reasons": []}
    ]


def _now() -> datetime:
    return datetime.now(UTC)
