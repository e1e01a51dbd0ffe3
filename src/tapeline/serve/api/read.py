"""What the pipeline declares, and rows of everything that can be read."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from fastapi import Query, Response

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.books.measures import adds_up
from tapeline.books.search import find_records
from tapeline.declare import Summary, Table
from tapeline.serve.api.context import (
    CSV,
    JSON,
    MOST_BATCH,
    Context,
    Limit,
    Moment,
    Offset,
    ResponseFormat,
    ShortLimit,
    Texts,
    Written,
    known,
    moment_of,
    new_routes,
    next_offset,
)
from tapeline.serve.requests import ReadRequest, ask, values_of
from tapeline.settings import ServeSettings
from tapeline.show import as_csv

routes = new_routes()


@routes.get("/pipeline")
def pipeline(desk: Context) -> Response:
    """Show what the pipeline declares, and when its first and last batch were published."""
    return desk.answer(("pipeline",), lambda: _pipeline_facts(desk.books, desk.settings))


@routes.get("/read/{name}", summary="Rows")
def read(  # noqa: PLR0913 - a route's parameters are its query
    desk: Context,
    name: str,
    where: Texts = [],  # noqa: B006 - FastAPI copies it
    group: Texts = [],  # noqa: B006
    sums: Annotated[list[str], Query(alias="sum", max_length=20)] = [],  # noqa: B006
    highest: Annotated[list[str], Query(alias="max", max_length=20)] = [],  # noqa: B006
    as_reported: Moment = None,
    since_batch: Annotated[int, Query(ge=0, le=MOST_BATCH)] = 0,
    limit: Limit = 1_000,
    offset: Offset = 0,
    form: Written = ResponseFormat.json,
) -> Response:
    """Read rows of a summary, view, table or reference: current ones, or as reported at a time.

    `where` is a condition such as terminal=WEB or window_start>=2026-11-13T14:30:00Z. With
    `group`, the answer has the sum of each `sum` column and the maximum of each `max` column.
    """
    _can_be_read(desk.books, name)
    question = ReadRequest(
        name, tuple(where), tuple(group), tuple(sums), tuple(highest),
        moment_of(as_reported), since_batch, limit, offset,
    )  # fmt: skip
    media = CSV if form is ResponseFormat.csv else JSON
    return desk.answer(("read", question, form), lambda: _rows(desk.books, question, form), media)


@routes.get("/values/{name}/{column}", summary="Values of a column")
def values(desk: Context, name: str, column: str, limit: Limit = 1_000) -> Response:
    """List the distinct values of a column in order, for example to fill a filter."""
    _can_be_read(desk.books, name)
    return desk.answer(
        ("values", name, column, limit),
        lambda: {"values": values_of(desk.books, name, column, limit)},
    )


@routes.get("/records", summary="Records by key")
def records(
    desk: Context,
    key: Annotated[str, Query(min_length=1, max_length=200)],
    limit: ShortLimit = 200,
    form: Written = ResponseFormat.json,
) -> Response:
    """Find records by key, or by one column of it: every verdict, and where each came from."""
    return desk.listing(
        ("records", key, limit),
        lambda: {"records": find_records(desk.books, key, limit)},
        "records",
        form,
    )


def _can_be_read(books: Books, name: str) -> None:
    declared = books.plan.pipeline
    known(name, declared.declared.keys() - declared.sources, "summary, view, table or reference")


def _rows(books: Books, question: ReadRequest, form: ResponseFormat) -> Any:
    found = ask(books, question)
    if form is ResponseFormat.csv:
        return as_csv(found.rows).encode()
    return {
        "name": question.name,
        "batch": found.batch,
        "at": found.at,
        "columns": _columns(found.rows),
        "rows": found.rows.to_pylist(),
        "next_offset": next_offset(question.offset, question.limit, found.more),
    }


def _columns(rows: pa.Table) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "type": str(field.type), "average": not adds_up(field)}
        for field in rows.schema
    ]


def _pipeline_facts(books: Books, settings: ServeSettings) -> dict[str, Any]:
    plan = books.plan
    cut = books.cut()
    first = read_commits(books.layout.commits, 1, 1)
    return {
        "name": plan.name,
        "batch": cut.batch,
        "published_at": cut.at,
        "first_published_at": next((row.at for row in first if row.publishes), None),
        "final_after": plan.pipeline.final_after,
        "acts": settings.acts == "yes",
        "sources": list(plan.pipeline.sources),
        "references": list(plan.pipeline.references),
        "tables": [_table_facts(table) for table in plan.tables],
        "summaries": [_summary_facts(summary) for summary in plan.summaries],
        "views": [view.name for view in plan.views],
    }


def _table_facts(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "about": table.about,
        "key": table.key,
        "reads": table.stream,
        "corrects": table.sequence_by is not None,
    }


def _summary_facts(summary: Summary) -> dict[str, Any]:
    return {
        "name": summary.name,
        "about": summary.about,
        "key": summary.key,
        "time": summary.time,
        "width": summary.width,
        "reads": summary.stream,
    }
