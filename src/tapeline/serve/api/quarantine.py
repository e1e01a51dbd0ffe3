"""The quarantine: its records, corrections without an original, and what people decide."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from tapeline.books import Books
from tapeline.books.lineage import origin_facts, origins_at
from tapeline.books.operator import DISMISS, REDRIVE
from tapeline.books.position import parse_position
from tapeline.books.quarantine import Actor, QuarantineFilter, decide, quarantined, show
from tapeline.books.reason_kinds import grouped, kind_of, kind_of_record
from tapeline.errors import OperationError
from tapeline.serve.api.context import (
    JSON,
    Acting,
    Context,
    Limit,
    Moment,
    Offset,
    ResponseFormat,
    ShortLimit,
    Written,
    as_json,
    known,
    moment_of,
    new_routes,
    next_offset,
)

Text = Annotated[str | None, Query(max_length=200)]
MOST_ACTS = 1_000
MOST_RECORD_CHARACTERS = 50_000
MOST_GROUPS = 1_000
routes = new_routes()
acts = new_routes()


class ProblemKind(StrEnum):
    """Kind of problem: the record, a step, a refused correction, or a rule."""

    unreadable = "unreadable"
    step = "step"
    conflict = "conflict"
    rule = "rule"


@dataclass(frozen=True)
class _Page:
    """Which records of a list."""

    kind: ProblemKind | None
    limit: int
    offset: int


@routes.get("/quarantine", summary="Quarantined records")
def quarantine(  # noqa: PLR0913 - a route's parameters are its query
    desk: Context,
    table: Text = None,
    reason: Text = None,
    source: Text = None,
    since: Moment = None,
    kind: ProblemKind | None = None,
    limit: ShortLimit = 100,
    offset: Offset = 0,
    form: Written = ResponseFormat.json,
) -> Response:
    """List quarantined records, newest first: why, since when, where each came from.

    `groups` has one row for each kind, table and reason, with what can be done about it.
    """
    chosen = QuarantineFilter(table, reason, source, moment_of(since))
    return desk.listing(
        ("quarantine", table, reason, source, since, kind, limit, offset),
        lambda: _quarantine_facts(desk.books, chosen, _Page(kind, limit, offset)),
        "records",
        form,
    )


@routes.get("/quarantine/{position}", summary="One quarantined record")
def one(desk: Context, position: str) -> Response:
    """Show one record: its content, its reasons, and the actions taken on it."""
    return Response(as_json(show(desk.books, position)), media_type=JSON)


@routes.get("/unmatched/{table}", summary="Corrections without an original")
def unmatched(desk: Context, table: str, limit: Limit = 100) -> Response:
    """List corrections and cancellations without an original."""
    known(table, desk.books.plan.pipeline.tables, "table")

    def rows() -> Any:
        found = desk.books.unmatched(table)
        return {"count": found.num_rows, "rows": found.slice(0, limit).to_pylist()}

    return desk.answer(("unmatched", table, limit), rows)


class Decided(BaseModel):
    """An action on quarantined records. The token or the proxy says who takes it."""

    model_config = ConfigDict(extra="forbid")

    act: str = Field(pattern=f"^({REDRIVE}|{DISMISS})$")
    positions: list[str] = Field(min_length=1, max_length=MOST_ACTS)
    table: str = Field(max_length=100)
    note: str = Field(default="", max_length=1_000)
    # A corrected record in the place of the only position.
    record: str | None = Field(default=None, min_length=1, max_length=MOST_RECORD_CHARACTERS)


@acts.post("/quarantine/acts", summary="Redrive or dismiss records")
def act(desk: Context, reader: Acting, decided: Decided) -> JSONResponse:
    """Redrive or dismiss quarantined records. The next batch carries it out.

    With `record`, a corrected record takes the place of the one at the only position. The name of
    the token, or the user name from the proxy, is saved with the action.
    """
    if decided.record is not None and decided.act != REDRIVE:
        raise OperationError("a corrected record needs the action 'redrive'.")
    chosen = QuarantineFilter(table=decided.table, positions=decided.positions)
    rows = quarantined(desk.books, chosen)
    signed = Actor(datetime.now(UTC), reader.name, decided.note)
    content = decided.record.encode() if decided.record is not None else None
    recorded = decide(desk.books, decided.act, rows, signed, content)
    return JSONResponse({"recorded": len(recorded), "asked": len(decided.positions)})


def _quarantine_facts(books: Books, chosen: QuarantineFilter, page: _Page) -> dict[str, Any]:
    found = quarantined(books, chosen)
    groups = grouped(books.plan, found)
    if page.kind is not None:
        groups = [group for group in groups if group["kind"] == page.kind]
        found = [row for row in found if _is_of(books, row, page.kind)]
    reasons = Counter(reason for row in found for reason in row["reasons"])
    some = found[page.offset : page.offset + page.limit]
    more = len(found) > page.offset + page.limit
    return {
        "count": len(found),
        "reasons": dict(reasons.most_common()),
        "groups": groups[:MOST_GROUPS],
        "records": _with_origins(books, some),
        "next_offset": next_offset(page.offset, page.limit, more),
    }


def _is_of(books: Books, row: dict[str, Any], kind: str) -> bool:
    return any(kind_of(books.plan, row["table"], one) == kind for one in row["reasons"])


def _with_origins(books: Books, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records with their kind, and their file and line, or topic, partition and offset."""
    places = [parse_position(row["position"]) for row in rows]
    origins = origins_at(books, [place.whole for place in places])
    found = []
    for row, place in zip(rows, places, strict=True):
        came = origin_facts(origins.get(place.whole, {}))
        found.append(
            {**row, "kind": kind_of_record(books.plan, row["table"], row["reasons"]), **came}
        )
    return found
