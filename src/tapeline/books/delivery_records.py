"""The records of one delivery: where each is, what it is, and its verdict in every table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tapeline.books.deliveries import SPANNED, Delivery, batch_of, span, tables_of, view_since
from tapeline.books.position import WHOLE, Position, has_rows, row_column
from tapeline.books.reader import Books, ReadPoint
from tapeline.books.reasons import details_of, sentence_of
from tapeline.books.schemas import key_words
from tapeline.store.duckdb import Connection, connect

Row = dict[str, Any]


@dataclass(frozen=True)
class DeliveryRecords:
    """Some records of a delivery; `more` when there are others after them."""

    records: list[Row]
    more: bool


@dataclass(frozen=True)
class RecordsWanted:
    """Which records of a delivery: those with a verdict, if one is given."""

    verdict: str | None = None
    limit: int = 20
    offset: int = 0


def records_of(books: Books, one: Delivery, wanted: RecordsWanted) -> DeliveryRecords:
    """Records of a delivery on the tape, in order."""
    if not one.pieces or not one.records:
        return DeliveryRecords([], False)
    cut = books.cut()
    with connect() as connection:
        if not span(connection, books, [one]):
            return DeliveryRecords([], False)
        tables = _register(connection, books, one, cut)
        _choose(connection, tables, wanted)
        records = _records(connection, one.source)
        for table, view in tables.items():
            _add_verdicts(connection, table, view, records)
    found = list(records.values())
    return DeliveryRecords(found[: wanted.limit], len(found) > wanted.limit)


def _register(
    connection: Connection, books: Books, one: Delivery, cut: ReadPoint
) -> dict[str, str]:
    """Views of what the registers have of the delivery, by table."""
    position = cut.commit.positions.get(one.source)
    if not cut.batch or position is None or position.last < one.tape[0]:
        return {}
    first = batch_of(books, one.source, one.tape[0], cut.batch)
    views: dict[str, str] = {}
    for number, table in enumerate(tables_of(books, one.source)):
        if not view_since(connection, books, cut, table, first):
            continue
        row = row_column(has_rows(connection, "r"))
        views[table] = f"standing_{number}"
        connection.execute(
            f'create or replace temp table "{views[table]}" as select r._position.part as part, '
            f"r._position.at as place, {row} as of_row, _verdict as verdict, "
            "arg_max(_reasons, _batch) as reasons, max(_key) as key, max(_batch) as batch "
            f"{SPANNED} where _row = 0 and _batch <= {int(cut.batch)} and r._position.source = ? "
            "group by all having sum(_sign) > 0",
            [one.source],
        )
    return views


def _choose(connection: Connection, tables: dict[str, str], wanted: RecordsWanted) -> None:
    """Make `chosen`: the records of the tape that are shown, and one more."""
    with_verdict = " union ".join(
        f'select part, place from "{view}" where verdict = $verdict' for view in tables.values()
    )
    if wanted.verdict is not None and not tables:
        with_verdict = "select part, low as place from spans where $verdict is null"
    chosen = f"semi join ({with_verdict}) v on v.part = tape.part and v.place = tape.at"
    named = {"verdict": wanted.verdict} if wanted.verdict is not None else {}
    connection.execute(
        "create or replace temp table chosen as select tape.* from tape "
        'join spans s on tape.part = s.part and tape."at" between s.low and s.high '
        f'{chosen if named else ""} order by tape.part, tape."at" '
        f"limit {int(wanted.limit) + 1} offset {int(wanted.offset)}",
        named,
    )


def _records(connection: Connection, source: str) -> dict[tuple[int, int], Row]:
    rows = connection.execute('select * from chosen order by part, "at"')
    names = [column[0] for column in rows.description or ()]
    found: dict[tuple[int, int], Row] = {}
    for values in rows.fetchall():
        row = dict(zip(names, values, strict=True))
        topic = row.get("topic")
        found[row["part"], row["at"]] = {
            "position": Position(source, row["part"], row["at"]).text,
            "line": None if topic else row["line"],
            "topic": topic,
            "partition": row.get("partition"),
            "offset": row["line"] if topic else None,
            "path": row.get("path"),
            "record": row["raw"],
            "verdicts": [],
        }
    return found


def _add_verdicts(
    connection: Connection, table: str, view: str, records: dict[tuple[int, int], Row]
) -> None:
    """Put what stands in a table beside the records that are shown."""
    rows = connection.execute(
        f'select v.part, v.place, of_row, verdict, reasons, v.key, batch from "{view}" v '
        'semi join chosen c on v.part = c.part and v.place = c."at" order by 1, 2, 3, batch'
    ).fetchall()
    for part, place, row, verdict, reasons, key, batch in rows:
        records[part, place]["verdicts"].append(
            {
                "table": table,
                "row": None if row == WHOLE else row,
                "verdict": verdict,
                "reasons": list(map(sentence_of, reasons or ())),
                "details": details_of(reasons or ()),
                "key": None if key is None else key_words(key),
                "batch": batch,
            }
        )
