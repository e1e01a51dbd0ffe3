"""The quarantine: what lies there, what waits for its first version, and what people decide."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from tapeline.books import Books
from tapeline.books.operator import DISMISS, REDRIVE
from tapeline.serve.api.desk import (
    JSON,
    Form,
    Limit,
    Moment,
    Offset,
    ShortLimit,
    TheDesk,
    Written,
    as_json,
    known,
    moment_of,
    new_routes,
    next_offset,
)
from tapeline.watch.quarantine import Filter, Signed, decide, quarantined, show

Text = Annotated[str | None, Query(max_length=200)]
MOST_ACTS = 1_000
routes = new_routes()
acts = new_routes()


@routes.get("/quarantine")
def quarantine(  # noqa: PLR0913 - a route's parameters are its query
    desk: TheDesk,
    table: Text = None,
    reason: Text = None,
    source: Text = None,
    since: Moment = None,
    limit: ShortLimit = 100,
    offset: Offset = 0,
    form: Written = Form.json,
) -> Response:
    """The records in quarantine, newest first, and how many there are for each reason."""
    chosen = Filter(table, reason, source, moment_of(since))
    return desk.listing(
        ("quarantine", table, reason, source, since, limit, offset),
        lambda: _quarantine_facts(desk.books, chosen, limit, offset),
        "records",
        form,
    )


@routes.get("/quarantine/{position}")
def one(desk: TheDesk, position: str) -> Response:
    """One record: its bytes, its reasons, and what was decided about it."""
    return Response(as_json(show(desk.books, position)), media_type=JSON)


@routes.get("/unmatched/{table}")
def unmatched(desk: TheDesk, table: str, limit: Limit = 100) -> Response:
    """Corrections and cancellations of what has not come."""
    known(table, desk.books.plan.pipeline.tables, "table")

    def rows() -> Any:
        found = desk.books.unmatched(table)
        return {"count": found.num_rows, "rows": found.slice(0, limit).to_pylist()}

    return desk.answer(("unmatched", table, limit), rows)


class Decided(BaseModel):
    """What somebody decides about records in quarantine."""

    act: str = Field(pattern=f"^({REDRIVE}|{DISMISS})$")
    positions: list[str] = Field(min_length=1, max_length=MOST_ACTS)
    table: str = Field(max_length=100)
    who: str = Field(min_length=1, max_length=100)
    note: str = Field(default="", max_length=1_000)


@acts.post("/quarantine/acts")
def act(desk: TheDesk, decided: Decided) -> JSONResponse:
    """Send records through their table again, or dismiss them; the flow does it next."""
    chosen = Filter(table=decided.table, positions=decided.positions)
    rows = quarantined(desk.books, chosen)
    signed = Signed(datetime.now(UTC), decided.who, decided.note)
    recorded = decide(desk.books, decided.act, rows, signed)
    return JSONResponse({"recorded": len(recorded), "asked": len(decided.positions)})


def _quarantine_facts(books: Books, chosen: Filter, limit: int, offset: int) -> dict[str, Any]:
    found = quarantined(books, chosen)
    reasons = Counter(reason for row in found for reason in row["reasons"])
    return {
        "count": len(found),
        "reasons": dict(reasons.most_common()),
        "records": found[offset : offset + limit],
        "next_offset": next_offset(offset, limit, len(found) > offset + limit),
    }
