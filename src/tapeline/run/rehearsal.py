"""A dry run of a redrive: what each record would become, and which numbers would move."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tapeline.books import Books
from tapeline.books.operator import REDRIVE, Act
from tapeline.books.schemas import JOURNAL
from tapeline.plan import Plan
from tapeline.run.flow import Flow
from tapeline.run.journal import Posted
from tapeline.run.judging import Judged
from tapeline.run.lock import WriterLock
from tapeline.run.session import build_session
from tapeline.run.tape import Tape
from tapeline.settings import Settings

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
        session = build_session(settings, plan.name)
        lock.enter_jvm(session)
        tapes = {n: Tape(books.layout, n, _now) for n in plan.pipeline.sources}
        flow = Flow(session, plan, settings, tapes, _now)
        acts = [Act(REDRIVE, r["table"], _place(r), r["batch"], record) for r in rows]
        computed = flow.rehearse(acts)
        flow.close()
    finally:
        lock.release()
    records = [
        _outcome(judged.register, row)
        for row in rows
        if isinstance(judged := computed.get(row["table"]), Judged)
    ]
    changes = [
        {"summary": name, "change": {k: str(v) for k, v in row.items() if k not in OWN}}
        for name, result in computed.items()
        if isinstance(result, Posted)
        for row in result.journal.to_pylist()
    ]
    return {"records": records, "changes": changes}


def _outcome(register: pa.Table, row: Row) -> Row:
    """What one record would become."""
    for one in register.to_pylist():
        if one["_sign"] > 0 and one["_row"] == 0 and _position(one) == row["position"]:
            return {
                "position": row["position"],
                "table": row["table"],
                "verdict": one["_verdict"],
                "reasons": one["_reasons"],
            }
    return {"position": row["position"], "table": row["table"], "verdict": "", "reasons": []}


def _position(row: Row) -> str:
    place = row["_position"]
    return f"{place['source']}:{place['part']}:{place['at']}"


def _place(row: Row) -> tuple[str, int, int]:
    source, part, at = row["position"].split(":")
    return source, int(part), int(at)


def _now() -> datetime:
    return datetime.now(UTC)
