"""Deliveries: what was delivered, what became of it, and its records."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from tapeline.books.deliveries import STATES, DeliveryFilter
from tapeline.books.delivery_records import RecordsWanted, records_of
from tapeline.serve.api.context import (
    JSON,
    Context,
    Offset,
    ResponseFormat,
    ShortLimit,
    Written,
    as_json,
    deliveries_of,
    listed_as_csv,
    new_routes,
    next_offset,
)

Text = Annotated[str | None, Query(max_length=500)]
routes = new_routes()


@routes.get("/deliveries", summary="Deliveries")
def deliveries(  # noqa: PLR0913 - a route's parameters are its query
    desk: Context,
    state: Annotated[str | None, Query(max_length=20, description=", ".join(STATES))] = None,
    source: Text = None,
    name: Text = None,
    limit: ShortLimit = 50,
    offset: Offset = 0,
    form: Written = ResponseFormat.json,
) -> Response:
    """List files, offset ranges and pulls, newest first: state, arrival, batch and verdicts."""
    known = deliveries_of(desk)
    page = known.page(DeliveryFilter(state, source, name), limit, offset)
    listed = [one.facts() for one in page.deliveries]
    if form is ResponseFormat.csv:
        return listed_as_csv(listed)
    following = next_offset(offset, limit, page.more)
    facts = {**known.overview(), "deliveries": listed, "next_offset": following}
    return Response(as_json(facts), media_type=JSON)


@routes.get("/deliveries/{name:path}", summary="One delivery")
def one(
    desk: Context, name: str, verdict: Text = None, limit: ShortLimit = 50, offset: Offset = 0
) -> Response:
    """Show one delivery, by its name or id, and its records with verdicts and reasons.

    Of several with the same name, the newest; `others` has the ids of the others.
    """
    found, others = deliveries_of(desk).find(name)
    records = records_of(desk.books, found, RecordsWanted(verdict, limit, offset))
    facts = {
        **found.facts(),
        "others": others,
        "shown": records.records,
        "next_offset": next_offset(offset, limit, records.more),
    }
    return Response(as_json(facts), media_type=JSON)
