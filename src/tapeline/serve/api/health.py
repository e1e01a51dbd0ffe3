"""State of the pipeline: trial balance, health, and an event for each batch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query, Response
from fastapi.responses import StreamingResponse

from tapeline.books import Books
from tapeline.books.alerts import words_of_tick
from tapeline.books.audit import audit
from tapeline.books.commit import Commit
from tapeline.books.commits import read_commits
from tapeline.books.gaps import gaps_of
from tapeline.books.pulls import read_pulls
from tapeline.books.query_position import unproved
from tapeline.books.reference_ages import ReferenceAge, read_ages
from tapeline.books.status import Status, read_status
from tapeline.intake.alerts import engine_alerts
from tapeline.serve.api.context import (
    JSON,
    MOST_BATCH,
    ApiContext,
    Context,
    ResponseFormat,
    ShortLimit,
    TheReader,
    Written,
    as_json,
    deliveries_of,
    new_routes,
)

routes = new_routes()


@routes.get("/me", summary="Current user")
def me(desk: Context, reader: TheReader) -> Response:
    """Show who is asking: name, role, and whether there is a session to log out of."""
    acts = desk.settings.acts == "yes" and reader.role == "act"
    facts = {
        "name": reader.name,
        "role": reader.role,
        "acts": acts,
        "acts_are_on": desk.settings.acts == "yes",
        "session": reader.session,
    }
    return Response(as_json(facts), media_type=JSON)


@routes.get("/audit", summary="Trial balance")
def balance(desk: Context, form: Written = ResponseFormat.json) -> Response:
    """Check the trial balance of everything since the last check, and show its counts."""
    return desk.listing(("audit",), lambda: _audit_facts(desk.books), "checks", form)


@routes.get("/health")
def health(desk: Context, batches: ShortLimit = 200) -> Response:
    """Show the lag of every source, recent batches and current problems."""
    return Response(as_json(_health_facts(desk, batches)), media_type=JSON)


@routes.get(
    "/events",
    summary="Event stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    desk: Context,
    after: Annotated[int | None, Query(ge=0, le=MOST_BATCH)] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """Stream one event per published batch. With `after`, start after that batch, without gaps."""
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
        "totals": {name: counts.as_dict() for name, counts in cut.commit.totals.items()},
        "tapes": _tape_records(books, cut.commit),
        "gaps": [gap.facts() for gap in gaps_of(books.layout.operator)],
        "unproved": unproved(books),
    }


def _tape_records(books: Books, commit: Commit) -> dict[str, int]:
    """Records processed from each tape: those with a verdict in the first table."""
    found: dict[str, int] = {}
    for table in books.plan.tables:
        if table.stream in books.plan.pipeline.sources:
            found[table.stream] = sum(commit.total(table.name).verdicts.values())
    return found


def _health_facts(desk: ApiContext, batches: int) -> dict[str, Any]:
    status = read_status(desk.books.layout.status) or Status(running=False)
    now = datetime.now(UTC)
    known = deliveries_of(desk)
    active = [one for one in engine_alerts(known, now) if one.closed_at is None]
    tick = {"tick_words": words_of_tick(status.tick, now)} if status.tick else {}
    return {
        **tick,
        "now": now,
        "status": _with_catch_up(status).model_dump(exclude_unset=True, exclude={"pid"}),
        "alerts": [one.model_dump() for one in active],
        "rejected": len(known.undecided()),
        "pulls": [pull.as_dict() for pull in read_pulls(desk.books.layout).pulls],
        "references": [_aged(one) for one in read_ages(desk.books.layout)],
        "recent": _recent(desk.books, batches),
        "feed": {"clients": desk.feed.clients, "problem": desk.feed.problem},
    }


def _aged(one: ReferenceAge) -> dict[str, Any]:
    return {**one.as_dict(), "age_seconds": one.age_seconds(datetime.now(UTC))}


def _with_catch_up(status: Status) -> Status:
    """The same, with the time that each source needs at the recent rate of the pipeline."""
    if not status.sources:
        return status
    rate = status.records_per_second

    def seconds(lag: int) -> float | None:
        return round(lag / rate, 1) if rate else None if lag else 0.0

    sources = {
        name: one.model_copy(update={"seconds_to_catch_up": seconds(one.lag_records)})
        for name, one in status.sources.items()
    }
    return status.model_copy(update={"sources": sources})


def _recent(books: Books, batches: int) -> list[dict[str, Any]]:
    """The last batches: publication time, number of records, and duration."""
    last = books.cut().batch
    rows = read_commits(books.layout.commits, max(1, last - batches + 1), last) if last else []
    times = {row.batch: row.at for row in rows if row.publishes}
    return [
        {
            "batch": row.batch,
            "at": times[row.batch],
            "records": row.commit.records,
            "milliseconds": row.commit.milliseconds,
        }
        for row in rows
        if row.decides and row.batch in times
    ]
