"""The quarantine as a workplace: what lies there, and what people decide about it."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tapeline.books import Books
from tapeline.books.operator import DISMISS, REDRIVE, Act, OperatorTape
from tapeline.books.query import connect, register_table
from tapeline.books.reader import standing
from tapeline.errors import OperationError, QuestionError, did_you_mean
from tapeline.watch.origin import keys_at, record_at

Row = dict[str, Any]
POSITION = re.compile(r"([a-z][a-z0-9_]*):(\d+):(\d+)")


@dataclass(frozen=True)
class Filter:
    """Which quarantined records: by table, a part of a reason, source, time or position."""

    table: str | None = None
    reason: str | None = None
    source: str | None = None
    since: datetime | None = None
    positions: Sequence[str] = ()


def quarantined(books: Books, chosen: Filter, limit: int | None = None) -> list[Row]:
    """The records that stand in quarantine, newest batch first."""
    tables = books.plan.pipeline.tables
    if chosen.table is not None and chosen.table not in tables:
        raise QuestionError(f"'{chosen.table}' is no table.{did_you_mean(chosen.table, tables)}")
    wanted = [_parse(text) for text in chosen.positions]
    found: list[Row] = []
    batch = books.cut().batch
    for name in [chosen.table] if chosen.table else tables:
        with connect() as connection:
            folder = books.layout.register(name)
            if not register_table(connection, "r", folder, (0, batch)):
                continue
            register_table(connection, "c", books.layout.commits, (0, batch))
            rows = connection.execute(
                "select q._position.source, q._position.part, q._position.at, q._reasons, q._raw, "
                f"q._key, q._batch, c.at from ({standing('r', batch, 'quarantined')}) q "
                "left join c on c.batch = q._batch and c.event = 'published' "
                "where (? is null or q._position.source = ?) and (? is null or c.at >= ?) "
                "order by q._batch desc, q._position",
                [chosen.source, chosen.source, chosen.since, chosen.since],
            ).fetchall()
        keys = keys_at(books, books.plan.entry_of(name).name, [r[:3] for r in rows if r[5] is None])
        for source, part, at, reasons, raw, key, of_batch, moment in rows:
            place = (source, part, at)
            if wanted and place not in wanted:
                continue
            if chosen.reason and not any(chosen.reason.lower() in r.lower() for r in reasons):
                continue
            found.append(
                {
                    "table": name,
                    "position": f"{source}:{part}:{at}",
                    "key": key if key is not None else keys.get(place),
                    "reasons": reasons,
                    "batch": of_batch,
                    "at": moment,
                    "record": raw,
                }
            )
    return found if limit is None else found[:limit]


def show(books: Books, position: str) -> Row:
    """One record: its bytes, where it stands in quarantine, and what was decided about it."""
    place = _parse(position)
    rows = quarantined(books, Filter(positions=[position]))
    record = record_at(books, place)
    if record is None:
        raise QuestionError(f"there is no record {position}. 'quarantine list' names positions.")
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
class Signed:
    """Who decided, when and why."""

    at: datetime
    who: str | None = None  # the user of this machine if unsaid
    note: str = ""


def decide(
    books: Books, act: str, rows: Sequence[Row], signed: Signed, record: bytes | None = None
) -> list[Act]:
    """Record what somebody decided about quarantined records; the flow acts on it next."""
    if act not in (REDRIVE, DISMISS):
        raise QuestionError(f"'{act}' is no act.{did_you_mean(act, (REDRIVE, DISMISS))}")
    if record is not None and len(rows) != 1:
        raise OperationError(
            "a corrected record takes the place of exactly one: name its position."
        )
    entered = {t.name for t in books.plan.tables if t.stream in books.plan.pipeline.sources}
    if record is not None and rows[0]["table"] not in entered:
        raise OperationError(
            f"a corrected record enters where records enter, not in '{rows[0]['table']}': send a "
            "higher version of it, or correct the reference data."
        )
    acts = [
        Act(act, row["table"], _parse(row["position"]), row["batch"], record, signed.note)
        for row in rows
    ]
    if not acts:
        return []
    return OperatorTape(books.layout.operator).add(acts, signed.who or user(), signed.at)


def _parse(position: str) -> tuple[str, int, int]:
    match = POSITION.fullmatch(position)
    if not match:
        raise QuestionError(f"'{position}' is no position such as raw_trades:12:345.")
    return match[1], int(match[2]), int(match[3])


def user() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
