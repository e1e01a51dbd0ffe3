"""What all routes work with: the books, the answers kept of them, and how an answer is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from tapeline.books import Books
from tapeline.declare.duration import parse_moment
from tapeline.serve.answers import Answers
from tapeline.serve.feed import Feed
from tapeline.serve.questions import MOST_ROWS
from tapeline.settings import ServeSettings
from tapeline.show import as_csv, plain

MOST_OFFSET = 10_000_000
MOST_BATCH = 2**53
CSV = "text/csv; charset=utf-8"
JSON = "application/json"
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]
ShortLimit = Annotated[int, Query(ge=1, le=1_000)]
Offset = Annotated[int, Query(ge=0, le=MOST_OFFSET)]
Moment = Annotated[str | None, Query(max_length=40, description="such as 2026-11-13T10:31:00Z")]
Texts = Annotated[list[str], Query(max_length=20)]


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
        self, key: tuple[Hashable, ...], compute: Callable[[], Any], media: str = JSON
    ) -> Response:
        """An answer of the last batch, computed once for all who ask."""
        batch = self.books.cut().batch

        def written() -> bytes:
            found = compute()
            return found if isinstance(found, bytes) else as_json(found)

        content = self.answers.get((batch, *key), written)
        return Response(content, media_type=media, headers={"x-batch": str(batch)})


async def _desk(request: Request) -> Desk:
    found: Desk = request.app.state.desk
    return found


TheDesk = Annotated[Desk, Depends(_desk)]


def new_routes() -> APIRouter:
    """Routes under /api, each of which may be asked wrongly."""
    return APIRouter(prefix="/api", responses={400: {"description": "what is wrong, and why"}})


def known(name: str, names: Container[str], what: str) -> None:
    """Refuse what nobody declared."""
    if name not in names:
        raise HTTPException(404, f"'{name}' is no {what}.")


def moment_of(text: str | None) -> datetime | None:
    return parse_moment(text) if text else None


def next_offset(offset: int, limit: int, more: bool) -> int | None:
    """Where the next page begins, if there is one."""
    return offset + limit if more else None


def as_json(value: Any) -> bytes:
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode()


def _listed(rows: list[dict[str, Any]]) -> bytes:
    """Rows as CSV whose cells cannot start a formula."""
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: [_text(row.get(name)) for row in flat] for name in names}
    return as_csv(pa.table(columns)).encode()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row for CSV: what lies inside another value gets a column of its own."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}_{inner}": item for inner, item in value.items()}
        else:
            found[name] = "; ".join(map(str, value)) if isinstance(value, list) else value
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(plain(value))
