"""The quarantine: which records are in it, and what people decide about them."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tapeline.books import Books
from tapeline.books.lineage import keys_at, record_at
from tapeline.books.operator import DISMISS, REDRIVE, Act, OperatorTape
from tapeline.books.position import WHOLE, Position, has_rows, parse_position, row_column
from tapeline.books.reader import standing
from tapeline.books.reasons import details_of, sentence_of
from tapeline.books.schemas import key_words
from tapeline.errors import OperationError, QuestionError, did_you_mean
from tapeline.store.duckdb import connect, register_table

Row = dict[str, Any]


@dataclass(frozen=True)
class QuarantineFilter:
    """Which quarantined records: by table, a part of a reason, source, time or position."""

    table: str | None = None
    reason: str | None = None
    source: str | None = None
    since: datetime | None = None
    positions: Sequence[str] = ()


def quarantined(books: Books, chosen: QuarantineFilter, limit: int | None = None) -> list[Row]:
    """The records that stand in quarantine, newest batch first."""
    tables = books.plan.pipeline.tables
    if chosen.table is not None and chosen.table not in tables:
        raise QuestionError(
            f"table '{chosen.table}' not found.{did_you_mean(chosen.table, tables)}"
        )
    wanted = [parse_position(text) for text in chosen.positions]
    found: list[Row] = []
    cut = books.cut()
    batch = cut.batch
    for name in [chosen.table] if chosen.table else tables:
        with connect() as connection:
            if not books.view(connection, "r", cut.register(name), batch):
                continue
            register_table(connection, "c", books.layout.commits, (0, batch))
            row = row_column(has_rows(connection, "r"))
            rows = connection.execute(
                f"select _position.source, _position.part, _position.at, {row} as of_row, "
                "q._reasons, q._raw, q._key, q._batch, c.at "
                f"from ({standing('r', batch, 'quarantined')}) q "
                "left join c on c.batch = q._batch and c.event = 'published' "
                "where (? is null or q._position.source = ?) and (? is null or c.at >= ?) "
                "order by q._batch desc, q._position",
                [chosen.source, chosen.source, chosen.since, chosen.since],
            ).fetchall()
        places = [Position(*found[:4]) for found in rows]
        keyless = [place for place, found in zip(places, rows, strict=True) if found[6] is None]
        keys = keys_at(books, books.plan.entry_of(name).name, keyless)
        of_records = [found[4:] for found in rows]
        for place, (reasons, raw, key, of_batch, moment) in zip(places, of_records, strict=True):
            if wanted and place not in wanted:
                continue
            if chosen.reason and not any(chosen.reason.lower() in r.lower() for r in reasons):
                continue
            found.append(
                {
                    "table": name,
                    "position": place.text,
                    "key": key_words(key) if key is not None else keys.get(place),
                    "reasons": list(map(sentence_of, reasons)),
                    "details": details_of(reasons),
                    "batch": of_batch,
                    "at": moment,
                    "record": raw,
                }
            )
    return found if limit is None else found[:limit]


def show(books: Books, position: str) -> Row:
    """One record: its bytes, where it stands in quarantine, and what was decided about it."""
    place = parse_position(position)
    rows = quarantined(books, QuarantineFilter(positions=[position]))
    record = record_at(books, place)
    if record is None:
        raise QuestionError(
            f"record {position} not found. 'tapeline quarantine list' shows positions."
        )
    acts = [act.row() for act in OperatorTape(books.layout.operator).since(0)
            if act.table and act.position == place]  # fmt: skip
    return {
        "position": position,
        "record": record["raw"],
        "delivery": record["delivery"],
        "line": record["line"],
        "message": record["message"],
        "quarantined": [{k: v for k, v in row.items() if k != "record"} for row in rows],
        "acts": acts,
    }


@dataclass(frozen=True)
class Actor:
    """Who decided, when and why."""

    at: datetime
    who: str | None = None  # default: the user of this machine
    note: str = ""


def decide(
    books: Books, act: str, rows: Sequence[Row], signed: Actor, record: bytes | None = None
) -> list[Act]:
    """Record what somebody decided about quarantined records; the flow acts on it next."""
    if act not in (REDRIVE, DISMISS):
        raise QuestionError(f"'{act}' is not an action.{did_you_mean(act, (REDRIVE, DISMISS))}")
    if record is not None and len(rows) != 1:
        raise OperationError("a corrected record replaces exactly one record. Give one position.")
    if record is not None and parse_position(rows[0]["position"]).row != WHOLE:
        raise OperationError(
            f"{rows[0]['position']} is one row of a message, but a corrected record replaces a "
            "whole message. Send a higher version of the row, or dismiss it."
        )
    entered = {t.name for t in books.plan.tables if t.stream in books.plan.pipeline.sources}
    if record is not None and rows[0]["table"] not in entered:
        raise OperationError(
            f"a corrected record cannot be used in '{rows[0]['table']}', only where records enter. "
            "Send a higher version of the record, or correct the reference data."
        )
    acts = [
        Act(act, row["table"], parse_position(row["position"]), row["batch"], record, signed.note)
        for row in rows
    ]
    if not acts:
        return []
    return OperatorTape(books.layout.operator).add(acts, signed.who or user(), signed.at)


def user() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
