"""Why a number is what it is: its revisions, the records behind each, and what has moved."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from tapeline.declare.duration import parse_moment
from tapeline.serve.api.desk import (
    MOST_BATCH,
    Form,
    Limit,
    Offset,
    ShortLimit,
    Texts,
    TheDesk,
    Written,
    known,
    new_routes,
    next_offset,
)
from tapeline.watch.history import changes, records, why
from tapeline.watch.origin import Page

routes = new_routes()


@routes.get("/why/{summary}")
def revisions(desk: TheDesk, summary: str, key: Texts, form: Written = Form.json) -> Response:
    """The revisions of one number: when, by how much and why. '*' in a key stands for all."""
    _is_summary(desk, summary)
    return desk.listing(
        ("why", summary, *key),
        lambda: {
            "summary": summary,
            "key": key,
            "revisions": [
                {k: v for k, v in one.facts().items() if k != "records"}
                for one in why(desk.books, summary, _key(key), limit=0)
            ],
        },
        "revisions",
        form,
    )


@routes.get("/why/{summary}/records")
def behind(  # noqa: PLR0913 - a route's parameters are its query
    desk: TheDesk,
    summary: str,
    key: Texts,
    batch: Annotated[int, Query(ge=1, le=MOST_BATCH)],
    cause: Annotated[str, Query(max_length=100)],
    limit: ShortLimit = 50,
    offset: Offset = 0,
) -> Response:
    """The records behind one revision, with their share and where they came from."""
    _is_summary(desk, summary)

    def some() -> Any:
        page = Page(limit + 1, offset)
        found = records(desk.books, summary, _key(key), (batch, cause), page)
        return {
            "records": found[:limit],
            "next_offset": next_offset(offset, limit, len(found) > limit),
        }

    return desk.answer(("records", summary, *key, batch, cause, limit, offset), some)


@routes.get("/changes")
def moved(
    desk: TheDesk,
    since: Annotated[str, Query(max_length=40)],
    summary: Annotated[str | None, Query(max_length=100)] = None,
    limit: Limit = 1_000,
    offset: Offset = 0,
    form: Written = Form.json,
) -> Response:
    """Every published number that is another now than it was at a moment, and why."""
    if summary is not None:
        _is_summary(desk, summary)
    moment = parse_moment(since)

    def some() -> Any:
        found = changes(desk.books, moment, summary)
        return {
            "changes": found[offset : offset + limit],
            "next_offset": next_offset(offset, limit, len(found) > offset + limit),
        }

    return desk.listing(("changes", moment, summary, limit, offset), some, "changes", form)


def _is_summary(desk: TheDesk, name: str) -> None:
    known(name, desk.books.plan.pipeline.summaries, "summary")


def _key(texts: list[str]) -> list[str | None]:
    return [None if text == "*" else text for text in texts]
