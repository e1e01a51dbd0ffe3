"""The records of a number, and where each came from: a line of a delivery, or a message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tapeline.books import Books
from tapeline.books.generations import History, view_links
from tapeline.books.measures import shown_shares
from tapeline.books.position import Position, has_rows, position_of, row_column
from tapeline.books.schemas import MESSAGE, key_words
from tapeline.declare import Summary
from tapeline.store.duckdb import Connection, connect, register_table, register_tape

Row = dict[str, Any]
MOST_PER_REVISION = 100_000


@dataclass(frozen=True)
class RecordsPage:
    """Some of a long list."""

    limit: int
    offset: int = 0
    per_revision: bool = False  # so many of each revision, not of all together


def records_of(
    connection: Connection,
    books: Books,
    summary: Summary,
    condition: tuple[str, list[Any]],
    page: RecordsPage | None = None,
) -> dict[tuple[int, str], list[Row]]:
    """The records of revisions: their share, their key, and where they came from."""
    links = _links(connection, books, summary, condition, page)
    if not links:
        return {}
    batches = [link["_batch"] for link in links]
    places = [position_of(link["_position"]) for link in links]
    _want(connection, [(*place, batch) for place, batch in zip(places, batches, strict=True)])
    keys = _keys(connection, books, summary, batches)
    origins = origins_of(connection, books, places)
    entry = books.plan.entry_of(summary.stream).name
    # A record that was sent again entered its first table in an earlier batch.
    earlier = [p for p, b in zip(places, batches, strict=True) if (p, b) not in keys]
    known = keys_at(books, entry, earlier)
    found: dict[tuple[int, str], list[Row]] = {}
    for link in links:
        position = position_of(link["_position"])
        share = shown_shares({n: v for n, v in link.items() if not n.startswith("_")})
        record = {
            "sign": link["_sign"],
            "record": keys.get((position, link["_batch"]), known.get(position)),
            **share,
            **link["_position"],
            **origins.get(position.whole, {}),
        }
        found.setdefault((link["_batch"], link["_cause"]), []).append(record)
    return found


def _links(
    connection: Connection,
    books: Books,
    summary: Summary,
    condition: tuple[str, list[Any]],
    page: RecordsPage | None,
) -> list[Row]:
    """What links a summary's entries to records, in order."""
    where, values = condition
    cut = books.cut()
    history = History(books.layout, cut.commit, (0, cut.batch))
    if not view_links(connection, "links", history, summary):
        return []
    if page and page.per_revision:
        # Only the first of each group stay in memory, however many there are.
        most = min(page.limit, MOST_PER_REVISION)
        first = f"arg_min(_link, struct_pack(place := _position, sign := _sign), {most})"
        rows_of_each = f"from links as _link where {where} group by _batch, _cause"
        groups = f"select unnest({first}) as one {rows_of_each}"
        query = f"select unnest(one) from ({groups}) order by one._batch, one._position, one._sign"
    else:
        some = f"limit {page.limit} offset {page.offset}" if page else ""
        query = f"select * from links where {where} order by _batch, _position, _sign {some}"
    rows = connection.execute(query, values)
    names = [column[0] for column in rows.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
    return [{n: v for n, v in one.items() if n not in summary.key} for one in found]


def _keys(
    connection: Connection, books: Books, summary: Summary, batches: list[int]
) -> dict[tuple[Position, int], str]:
    """The keys of the wanted records, as the table where they entered knows them."""
    table = books.plan.entry_of(summary.stream)
    within = (min(batches), max(batches))
    folder = books.layout.table(books.cut().register(table.name))
    if not register_table(connection, "r", folder, within):
        return {}
    row = row_column(has_rows(connection, "r"))
    rows = connection.execute(
        f"select distinct _position.source, _position.part, _position.at, {row}, _batch, _key "
        "from r semi join wanted w on r._position.source = w.source and r._position.part = w.part "
        f"and r._position.at = w.place and {row} = w.number and r._batch = w.batch "
        "where _key is not null and _row = 0 and _batch in (select batch from wanted)"
    ).fetchall()
    return {(Position(*place), batch): key_words(key) for *place, batch, key in rows}


def _want(connection: Connection, places: Sequence[tuple[Any, ...]]) -> None:
    """Make the places of some records, perhaps with their batches, a table to join with."""
    names = ("source", "part", "place", "number", "batch")
    columns = zip(names, zip(*places, strict=True), strict=False)
    connection.register("wanted", pa.table({name: list(values) for name, values in columns}))


def keys_at(books: Books, table: str, places: list[Position]) -> dict[Position, str]:
    """The keys that a table knows for records, wherever they lie in its history."""
    if not places:
        return {}
    with connect() as connection:
        if not register_table(connection, "r", books.layout.table(books.cut().register(table))):
            return {}
        _want(connection, places)
        row = row_column(has_rows(connection, "r"))
        rows = connection.execute(
            f"select r._position.source, r._position.part, r._position.at, {row} as of_row, "
            "arg_max(_key, _batch) from r join wanted w on r._position.source = w.source "
            f"and r._position.part = w.part and r._position.at = w.place and {row} = w.number "
            "where _key is not null group by all"
        ).fetchall()
    return {Position(*place): key_words(key) for *place, key in rows}


def message_of(record: Row) -> Row | None:
    """What came with a message's value, and where it was; nothing of a line of a file."""
    if record.get("topic") is None:
        return None
    return {name: record[name] for name in MESSAGE.names} | {"offset": record["line"]}


def origins_of(
    connection: Connection,
    books: Books,
    places: Sequence[Position],
    raw: bool = False,
) -> dict[Position, Row]:
    """The delivery and line of the wanted records, and the message if it was one, from the tape.

    They go by their whole places: rows of a message share its origin.

    With `raw` also their bytes.
    """
    found: dict[Position, Row] = {}
    for source in {place.source for place in places}:
        if not register_tape(connection, "tape", books.layout.tape(source)):
            continue
        register_table(connection, "listed", books.layout.tape_batches(source))
        parts = ", ".join(str(n) for n in sorted({p.part for p in places if p.source == source}))
        names: dict[int, str] = {}
        for (text,) in connection.execute(
            f"select deliveries from listed where list_has_any(pieces, [{parts}]::bigint[])"
        ).fetchall():
            names |= {one["delivery"]: one["name"] for one in json.loads(text)}
        # By the numbers of the pieces first: they say which files need not be read.
        rows: pa.Table = connection.sql(
            f"select {'*' if raw else '* exclude (raw)'} from tape semi join wanted w "
            'on tape.part = w.part and tape."at" = w.place and w.source = ? '
            f"where part in ({parts})",
            params=[source],
        ).to_arrow_table()
        for record in rows.to_pylist():
            origin = {
                "delivery": record.get("path") or names.get(record["delivery"]),
                "line": record["line"],
                "message": message_of(record),
            }
            bytes_too = {"raw": record["raw"]} if raw else {}
            found[Position(source, record["part"], record["at"])] = origin | bytes_too
    return found


def origins_at(books: Books, places: Sequence[Position]) -> dict[Position, Row]:
    """Where records came from: file and line, or topic, partition and offset."""
    if not places:
        return {}
    with connect() as connection:
        _want(connection, places)
        return origins_of(connection, books, places)


def origin_facts(origin: Row) -> Row:
    """File and line of a record, or topic, partition and offset."""
    message = origin.get("message") or {}
    return {
        "delivery": origin.get("delivery"),
        "line": None if message else origin.get("line"),
        "topic": message.get("topic"),
        "partition": message.get("partition"),
        "offset": message.get("offset"),
    }


def record_at(books: Books, place: Position) -> Row | None:
    """One record of the tape: its bytes and where it came from."""
    if place.source not in books.plan.pipeline.sources:
        return None
    with connect() as connection:
        _want(connection, [place])
        return origins_of(connection, books, [place], raw=True).get(place.whole)
