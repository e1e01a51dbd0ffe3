"""What all routes share: the books, cached answers, and the output formats."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from tapeline.books import Books
from tapeline.declare.duration import parse_moment
from tapeline.intake.deliveries import Deliveries
from tapeline.serve.cache import ResponseCache
from tapeline.serve.door import Reader
from tapeline.serve.feed import Feed
from tapeline.serve.guard import READER
from tapeline.serve.requests import MOST_ROWS
from tapeline.settings import ServeSettings
from tapeline.show import as_csv, plain
from tapeline.terminal import json_text

MOST_OFFSET = 10_000_000
MOST_BATCH = 2**53
CSV = "text/csv; charset=utf-8"
JSON = "application/json"
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]
ShortLimit = Annotated[int, Query(ge=1, le=1_000)]
Offset = Annotated[int, Query(ge=0, le=MOST_OFFSET)]
Moment = Annotated[
    str | None,
    Query(
        max_length=40,
        description="A time such as 2026-11-13T10:31:00Z. UTC unless it has an offset.",
    ),
]
Texts = Annotated[list[str], Query(max_length=20)]


class ResponseFormat(StrEnum):
    """Output format of rows."""

    json = "json"
    csv = "csv"


Written = Annotated[ResponseFormat, Query(alias="format")]


@dataclass(frozen=True)
class ApiContext:
    """The books of this server and their cached answers."""

    books: Books
    feed: Feed
    answers: ResponseCache
    settings: ServeSettings
    project: Path  # input folders are in it

    def listing(
        self,
        key: tuple[Hashable, ...],
        compute: Callable[[], dict[str, Any]],
        rows: str,
        form: ResponseFormat,
    ) -> Response:
        """An answer that contains a list. As CSV, only the list."""
        if form is ResponseFormat.json:
            return self.answer(key, compute)
        return self.answer((*key, form), lambda: _listed(compute()[rows]), CSV)

    def answer(
        self, key: tuple[Hashable, ...], compute: Callable[[], Any], media: str = JSON
    ) -> Response:
        """An answer for the last published batch, computed once for all clients."""
        batch = self.books.cut().batch

        def written() -> bytes:
            found = compute()
            return found if isinstance(found, bytes) else as_json(found)

        content = self.answers.get((batch, *key), written)
        return Response(content, media_type=media, headers={"x-batch": str(batch)})


def deliveries_of(desk: ApiContext) -> Deliveries:
    """The deliveries of the pipeline, as they are now."""
    return Deliveries(desk.books, desk.project)


async def _desk(request: Request) -> ApiContext:
    found: ApiContext = request.app.state.desk
    return found


Context = Annotated[ApiContext, Depends(_desk)]


async def _reader(request: Request) -> Reader:
    found: Reader = request.scope[READER]
    return found


async def _acting(request: Request) -> Reader:
    found = await _reader(request)
    if found.role != "act":
        who = f"'{found.name}'" if found.name else "a client without a token"
        raise HTTPException(403, f"{who} can only read. Use a token with the role 'act'.")
    return found


TheReader = Annotated[Reader, Depends(_reader)]
Acting = Annotated[Reader, Depends(_acting)]


def new_routes() -> APIRouter:
    """Routes under /api, with the error response that all of them can give."""
    return APIRouter(
        prefix="/api",
        responses={400: {"description": "The request is not valid; `error` says why"}},
    )


def known(name: str, names: Container[str], what: str) -> None:
    """Answer 404 if the pipeline does not declare this name."""
    if name not in names:
        raise HTTPException(404, f"{what} '{name}' not found. See /api/pipeline for all names.")


def moment_of(text: str | None) -> datetime | None:
    return parse_moment(text) if text else None


def next_offset(offset: int, limit: int, more: bool) -> int | None:
    """Offset of the next page, or None on the last page."""
    return offset + limit if more else None


def as_json(value: Any) -> bytes:
    return json_text(plain(value), indent=None).encode()


def listed_as_csv(rows: list[dict[str, Any]]) -> Response:
    """An answer that is a list, as CSV."""
    return Response(_listed(rows), media_type=CSV)


def _listed(rows: list[dict[str, Any]]) -> bytes:
    """Rows as CSV. No cell can start a spreadsheet formula."""
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: [_text(row.get(name)) for row in flat] for name in names}
    return as_csv(pa.table(columns)).encode()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for CSV: each nested value gets its own column."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}_{inner}": item for inner, item in value.items()}
        else:
            found[name] = "; ".join(map(str, value)) if isinstance(value, list) else value
    return found


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(plain(value))
