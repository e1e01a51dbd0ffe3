"""How things stand: the trial balance, the health of the flow, and each batch as it comes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query, Response
from fastapi.responses import StreamingResponse

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.books.gaps import gaps_of
from tapeline.serve.api.desk import (
    JSON,
    MOST_BATCH,
    Desk,
    Form,
    ShortLimit,
    TheDesk,
    Written,
    as_json,
    new_routes,
)
from tapeline.watch.audit import audit
from tapeline.watch.pulls import read_pulls
from tapeline.watch.status import read_status

routes = new_routes()


@routes.get("/audit")
def balance(desk: TheDesk, form: Written = Form.json) -> Response:
    """The trial balance of what is new since the last one, and the counts it rests on."""
    return desk.listing(("audit",), lambda: _audit_facts(desk.books), "checks", form)


@routes.get("/health")
def health(desk: TheDesk, batches: ShortLimit = 200) -> Response:
    """Where the flow stands: lag of every source, recent batches, incidents."""
    return Response(as_json(_health_facts(desk, batches)), media_type=JSON)


@routes.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    desk: TheDesk,
    after: Annotated[int | None, Query(ge=0, le=MOST_BATCH)] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """A stream of events, one per published batch; `after` a batch nothing is left out."""
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit():
        after = min(int(last_event_id), MOST_BATCH)
    return StreamingResponse(
        await desk.feed.stream(after),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def _audit_facts(books: Books) -> dict[str, Any]:
    checks = audit(books)
    cut = books.cut()
    return {
        "batch": cut.batch,
        "at": cut.at,
        "balances": all(check.balances for check in checks),
        "checks": [check.facts() for check in checks],
        "totals": books.totals(),
        "tapes": _tape_records(books, cut.body),
        "gaps": [gap.facts() for gap in gaps_of(books.layout.operator)],
    }


def _tape_records(books: Books, body: dict[str, Any]) -> dict[str, int]:
    """Records that the flow has taken from each tape: what its first table gave a verdict to."""
    found: dict[str, int] = {}
    totals = body.get("totals", {})
    for table in books.plan.tables:
        if table.stream in books.plan.pipeline.sources:
            verdicts = totals.get(table.name, {}).get("verdicts", {})
            found[table.stream] = sum(verdicts.values())
    return found


def _health_facts(desk: Desk, batches: int) -> dict[str, Any]:
    status = read_status(desk.books.layout.status) or {"running": False}
    rate = status.get("records_per_second") or 0
    for source in status.get("sources", {}).values():
        lag = source["lag_records"]
        source["seconds_to_catch_up"] = round(lag / rate, 1) if rate else None if lag else 0.0
    return {
        "now": datetime.now(UTC),
        "status": {k: v for k, v in status.items() if k != "pid"},
        "pulls": read_pulls(desk.books.layout)["pulls"],
        "recent": _recent(desk.books, batches),
        "feed": {"clients": desk.feed.clients, "problem": desk.feed.problem},
    }


def _recent(books: Books, batches: int) -> list[dict[str, Any]]:
    """The last batches: when each was published, of how many records, and how long it took."""
    last = books.cut().batch
    rows = read_commits(books.layout.commits, max(1, last - batches + 1), last) if last else []
    times = {row["batch"]: row["at"] for row in rows if row["event"] == "published"}
    bodies = {row["batch"]: json.loads(row["body"]) for row in rows if row["event"] == "decided"}
    return [
        {
            "batch": batch,
            "at": times[batch],
            "records": sum(tape["records"] for tape in body["tapes"].values()),
            "milliseconds": body.get("milliseconds"),
        }
        for batch, body in bodies.items()
        if batch in times
    ]
