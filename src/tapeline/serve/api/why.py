"""The history of a number: its revisions, the records of each, and changes since a time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from tapeline.books.lineage import RecordsPage
from tapeline.books.revisions import changes, records, why
from tapeline.declare.duration import parse_moment
from tapeline.serve.api.context import (
    MOST_BATCH,
    Context,
    Limit,
    Offset,
    ResponseFormat,
    ShortLimit,
    Texts,
    Written,
    known,
    new_routes,
    next_offset,
)

routes = new_routes()


@routes.get("/why/{summary}", summary="Revisions of a number")
def revisions(
    desk: Context, summary: str, key: Texts, form: Written = ResponseFormat.json
) -> Response:
    """List the revisions of one number: when it changed, by how much and why.

    Give `key` once for each key column; '*' means all values.
    """
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


@routes.get("/why/{summary}/records", summary="Records of a revision")
def records_of_revision(  # noqa: PLR0913 - a route's parameters are its query
    desk: Context,
    summary: str,
    key: Texts,
    batch: Annotated[int, Query(ge=1, le=MOST_BATCH)],
    cause: Annotated[str, Query(max_length=100)],
    limit: ShortLimit = 50,
    offset: Offset = 0,
) -> Response:
    """List the records of one revision, with the amount and the origin of each."""
    _is_summary(desk, summary)

    def some() -> Any:
        page = RecordsPage(limit + 1, offset)
        found = records(desk.books, summary, _key(key), (batch, cause), page)
        return {
            "records": found[:limit],
            "next_offset": next_offset(offset, limit, len(found) > limit),
        }

    return desk.answer(("records", summary, *key, batch, cause, limit, offset), some)


@routes.get("/changes", summary="Changes since a time")
def moved(
    desk: Context,
    since: Annotated[str, Query(max_length=40)],
    summary: Annotated[str | None, Query(max_length=100)] = None,
    limit: Limit = 1_000,
    offset: Offset = 0,
    form: Written = ResponseFormat.json,
) -> Response:
    """List every published number that has changed since a given time, and why."""
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


def _is_summary(desk: Context, name: str) -> None:
    known(name, desk.books.plan.pipeline.summaries, "summary")


def _key(texts: list[str]) -> list[str | None]:
    return [None if text == "*" else text for text in texts]
