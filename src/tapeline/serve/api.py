"""The API: everything that people look at, as JSON or CSV, with limits on everything."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Header, HTTPException, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.books.gaps import gaps_of
from tapeline.books.operator import DISMISS, REDRIVE
from tapeline.declare.duration import parse_moment
from tapeline.serve.answers import Answers
from tapeline.serve.feed import Feed
from tapeline.serve.questions import MOST_ROWS, Question, ask, values_of
from tapeline.settings import ServeSettings
from tapeline.show import as_csv, plain
from tapeline.watch.audit import audit
from tapeline.watch.history import Page, changes, records, why
from tapeline.watch.quarantine import Filter, Signed, decide, quarantined, show
from tapeline.watch.status import read_status

TEXT = Query(max_length=200)
MOST_OFFSET = 10_000_000
MOST_BATCH = 2**53
MOST_ACTS = 1_000
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]
Offset = Annotated[int, Query(ge=0, le=MOST_OFFSET)]
Moment = Annotated[str | None, Query(max_length=40, description="such as 2026-11-13T10:31:00Z")]
Texts = Annotated[list[str], Query(max_length=20)]
Name = Annotated[str, Query(max_length=100)]
WHAT_IS_READ = "summary, view, table or reference"
CSV = "text/csv; charset=utf-8"


class Form(StrEnum):
    """How rows are written."""

    json = "json"
    csv = "csv"


Written = Annotated[Form, Query(alias="format")]


@dataclass(frozen=True)
class Desk:
    """What the routes work with."""

    books: Books
    feed: Feed
    answers: Answers
    settings: ServeSettings

    def listing(
        self,
        key: tuple[Hashable, ...],
        compute: Callable[[], dict[str, Any]],
        rows: str,
        form: Form,
    ) -> Response:
        """An answer with a list in it; as CSV, that list alone."""
        if form is Form.json:
            return self.answer(key, compute)
        return self.answer((*key, form), lambda: _listed(compute()[rows]), CSV)

    def answer(
        self, key: tuple[Hashable, ...], compute: Callable[[], Any], media: str = "application/json"
    ) -> Response:
        """An answer of the last batch, computed once for all who ask."""
        batch = self.books.cut().batch

        def written() -> bytes:
            found = compute()
            return found if isinstance(found, bytes) else _json(found)

        content = self.answers.get((batch, *key), written)
        return Response(content, media_type=media, headers={"x-batch": str(batch)})


def _json(value: Any) -> bytes:
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for CSV: what lies inside another value gets a column of its own."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}_{inner}": item for inner, item in value.items()}
        else:
            found[name] = "; ".join(map(str, value)) if isinstance(value, list) else value
    return found


def _listed(rows: list[dict[str, Any]]) -> bytes:
    """Rows as CSV whose cells cannot start a formula."""
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: [_text(row.get(name)) for row in flat] for name in names}
    return as_csv(pa.table(columns)).encode()


def _text(value: Any) -> str | None:
    return None if value is None else str(plain(value))


def _moment(text: str | None) -> datetime | None:
    return parse_moment(text) if text else None


def _known(name: str, names: Container[str], what: str) -> None:
    if name not in names:
        raise HTTPException(404, f"'{name}' is no {what}.")


def router(desk: Desk) -> APIRouter:
    """All routes under /api."""
    routes = APIRouter(prefix="/api", responses={400: {"description": "what is wrong, and why"}})
    _reading(routes, desk)
    _explaining(routes, desk)
    _watching(routes, desk)
    if desk.settings.acts == "yes":
        _acting(routes, desk)
    return routes


def _reading(routes: APIRouter, desk: Desk) -> None:
    books = desk.books
    declared = {n for n in books.plan.pipeline.declared if n not in books.plan.pipeline.sources}

    @routes.get("/pipeline")
    def pipeline() -> Response:
        """What is declared, and when it was first and last published."""
        return desk.answer(("pipeline",), lambda: _pipeline_facts(books, desk.settings))

    @routes.get("/read/{name}")
    def read(  # noqa: PLR0913 - a route's parameters are its query
        name: str,
        where: Texts = [],  # noqa: B006 - FastAPI copies it
        group: Texts = [],  # noqa: B006
        sums: Annotated[list[str], Query(alias="sum", max_length=20)] = [],  # noqa: B006
        highest: Annotated[list[str], Query(alias="max", max_length=20)] = [],  # noqa: B006
        as_reported: Moment = None,
        since_batch: Annotated[int, Query(ge=0, le=MOST_BATCH)] = 0,
        limit: Limit = 1_000,
        offset: Offset = 0,
        form: Written = Form.json,
    ) -> Response:
        """Rows of a summary, view, table or reference: as they stand, or as they were reported.

        `where` is a condition such as terminal=WEB or window_start>=2026-11-13T14:30:00Z. With
        `group`, the columns of `sum` are added up and those of `max` looked for.
        """
        _known(name, declared, WHAT_IS_READ)
        question = Question(
            name, tuple(where), tuple(group), tuple(sums), tuple(highest),
            _moment(as_reported), since_batch, limit, offset,
        )  # fmt: skip

        def rows() -> Any:
            found = ask(books, question)
            if form is Form.csv:
                return as_csv(found.rows).encode()
            return {
                "name": name,
                "batch": found.batch,
                "at": found.at,
                "columns": _columns(found.rows),
                "rows": found.rows.to_pylist(),
                "next_offset": offset + limit if found.more else None,
            }

        media = CSV if form is Form.csv else "application/json"
        return desk.answer(("read", question, form), rows, media)

    @routes.get("/values/{name}/{column}")
    def values(name: str, column: str, limit: Limit = 1_000) -> Response:
        """The different values of a column, in order: what a filter can offer."""
        _known(name, declared, WHAT_IS_READ)
        return desk.answer(
            ("values", name, column, limit),
            lambda: {"values": values_of(books, name, column, limit)},
        )


def _explaining(routes: APIRouter, desk: Desk) -> None:
    books = desk.books

    def keys(texts: list[str]) -> list[str | None]:
        return [None if text == "*" else text for text in texts]

    summaries = books.plan.pipeline.summaries

    @routes.get("/why/{summary}")
    def revisions(summary: str, key: Texts, form: Written = Form.json) -> Response:
        """The revisions of one number: when, by how much and why. '*' in a key stands for all."""
        _known(summary, summaries, "summary")
        return desk.listing(
            ("why", summary, *key),
            lambda: {
                "summary": summary,
                "key": key,
                "revisions": [
                    {k: v for k, v in one.facts().items() if k != "records"}
                    for one in why(books, summary, keys(key), limit=0)
                ],
            },
            "revisions",
            form,
        )

    @routes.get("/why/{summary}/records")
    def behind(
        summary: str,
        key: Texts,
        batch: Annotated[int, Query(ge=1, le=MOST_BATCH)],
        cause: Name,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
        offset: Offset = 0,
    ) -> Response:
        """The records behind one revision, with their share and where they came from."""
        _known(summary, summaries, "summary")

        def some() -> Any:
            page = Page(limit + 1, offset)
            found = records(books, summary, keys(key), (batch, cause), page)
            return {
                "records": found[:limit],
                "next_offset": offset + limit if len(found) > limit else None,
            }

        return desk.answer(("records", summary, *key, batch, cause, limit, offset), some)

    @routes.get("/changes")
    def moved(
        since: Annotated[str, Query(max_length=40)],
        summary: Annotated[str | None, Query(max_length=100)] = None,
        limit: Limit = 1_000,
        offset: Offset = 0,
        form: Written = Form.json,
    ) -> Response:
        """Every published number that is another now than it was at a moment, and why."""
        if summary is not None:
            _known(summary, summaries, "summary")
        moment = parse_moment(since)

        def some() -> Any:
            found = changes(books, moment, summary)
            more = len(found) > offset + limit
            return {
                "changes": found[offset : offset + limit],
                "next_offset": offset + limit if more else None,
            }

        key = ("changes", moment, summary, limit, offset)
        return desk.listing(key, some, "changes", form)


def _watching(routes: APIRouter, desk: Desk) -> None:
    books = desk.books

    @routes.get("/quarantine")
    def quarantine(  # noqa: PLR0913 - a route's parameters are its query
        table: Annotated[str | None, TEXT] = None,
        reason: Annotated[str | None, TEXT] = None,
        source: Annotated[str | None, TEXT] = None,
        since: Moment = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        offset: Offset = 0,
        form: Written = Form.json,
    ) -> Response:
        """The records in quarantine, newest first, and how many there are for each reason."""
        chosen = Filter(table, reason, source, _moment(since))
        return desk.listing(
            ("quarantine", table, reason, source, since, limit, offset),
            lambda: _quarantine_facts(books, chosen, limit, offset),
            "records",
            form,
        )

    @routes.get("/quarantine/{position}")
    def one(position: str) -> Response:
        """One record: its bytes, its reasons, and what was decided about it."""
        return Response(_json(show(books, position)), media_type="application/json")

    @routes.get("/unmatched/{table}")
    def unmatched(table: str, limit: Limit = 100) -> Response:
        """Corrections and cancellations of what has not come."""
        _known(table, books.plan.pipeline.tables, "table")

        def rows() -> Any:
            found = books.unmatched(table)
            return {"count": found.num_rows, "rows": found.slice(0, limit).to_pylist()}

        return desk.answer(("unmatched", table, limit), rows)

    @routes.get("/audit")
    def balance(form: Written = Form.json) -> Response:
        """The trial balance of what is new since the last one, and the counts it rests on."""
        return desk.listing(("audit",), lambda: _audit_facts(books), "checks", form)

    @routes.get("/health")
    def health(batches: Annotated[int, Query(ge=1, le=1_000)] = 200) -> Response:
        """Where the flow stands: lag of every source, recent batches, incidents."""
        return Response(_json(_health_facts(desk, batches)), media_type="application/json")

    @routes.get(
        "/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(
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


class Decided(BaseModel):
    """What somebody decides about records in quarantine."""

    act: str = Field(pattern=f"^({REDRIVE}|{DISMISS})$")
    positions: list[str] = Field(min_length=1, max_length=MOST_ACTS)
    table: str = Field(max_length=100)
    who: str = Field(min_length=1, max_length=100)
    note: str = Field(default="", max_length=1_000)


def _acting(routes: APIRouter, desk: Desk) -> None:
    @routes.post("/quarantine/acts")
    def act(decided: Decided) -> JSONResponse:
        """Send records through their table again, or dismiss them; the flow does it next."""
        chosen = Filter(table=decided.table, positions=decided.positions)
        rows = quarantined(desk.books, chosen)
        signed = Signed(datetime.now(UTC), decided.who, decided.note)
        acts = decide(desk.books, decided.act, rows, signed)
        return JSONResponse({"recorded": len(acts), "asked": len(decided.positions)})


def _columns(rows: pa.Table) -> list[dict[str, str]]:
    return [{"name": field.name, "type": str(field.type)} for field in rows.schema]


def _pipeline_facts(books: Books, settings: ServeSettings) -> dict[str, Any]:
    plan = books.plan
    cut = books.cut()
    first = read_commits(books.layout.commits, 1, 1)
    return {
        "name": plan.name,
        "batch": cut.batch,
        "published_at": cut.at,
        "first_published_at": next((r["at"] for r in first if r["event"] == "published"), None),
        "final_after": plan.pipeline.final_after,
        "acts": settings.acts == "yes",
        "sources": list(plan.pipeline.sources),
        "references": list(plan.pipeline.references),
        "tables": [
            {
                "name": t.name,
                "about": t.about,
                "key": t.key,
                "reads": t.stream,
                "corrects": t.sequence_by is not None,
            }
            for t in plan.tables
        ],
        "summaries": [
            {
                "name": s.name,
                "about": s.about,
                "key": s.key,
                "time": s.time,
                "width": s.width,
                "reads": s.stream,
            }
            for s in plan.summaries
        ],
        "views": [view.name for view in plan.views],
    }


def _quarantine_facts(books: Books, chosen: Filter, limit: int, offset: int) -> dict[str, Any]:
    found = quarantined(books, chosen)
    reasons: dict[str, int] = {}
    for row in found:
        for reason in row["reasons"]:
            reasons[reason] = reasons.get(reason, 0) + 1
    return {
        "count": len(found),
        "reasons": dict(sorted(reasons.items(), key=lambda item: -item[1])),
        "records": found[offset : offset + limit],
        "next_offset": offset + limit if len(found) > offset + limit else None,
    }


def _audit_facts(books: Books) -> dict[str, Any]:
    checks = audit(books)
    cut = books.cut()
    return {
        "batch": cut.batch,
        "at": cut.at,
        "balances": all(check.balances for check in checks),
        "checks": [{**check.facts(), "balances": check.balances} for check in checks],
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
    books = desk.books
    status = read_status(books.layout.status) or {"running": False}
    last = books.cut().batch
    rows = read_commits(books.layout.commits, max(1, last - batches + 1), last) if last else []
    times = {row["batch"]: row["at"] for row in rows if row["event"] == "published"}
    recent = []
    for row in rows:
        if row["event"] == "decided" and row["batch"] in times:
            body = json.loads(row["body"])
            recent.append(
                {
                    "batch": row["batch"],
                    "at": times[row["batch"]],
                    "records": sum(tape["records"] for tape in body["tapes"].values()),
                    "milliseconds": body.get("milliseconds"),
                }
            )
    rate = status.get("records_per_second") or 0
    for source in status.get("sources", {}).values():
        lag = source["lag_records"]
        source["seconds_to_catch_up"] = round(lag / rate, 1) if rate else None if lag else 0.0
    return {
        "now": datetime.now(UTC),
        "status": {k: v for k, v in status.items() if k != "pid"},
        "recent": recent,
        "feed": {"clients": desk.feed.clients, "problem": desk.feed.problem},
    }
