"""Finding a record by its key: every verdict that it got, and where it came from."""

from __future__ import annotations

import re
from typing import Any

from tapeline.books import Books
from tapeline.books.lineage import origin_facts, origins_at
from tapeline.books.position import Position, has_rows, row_column
from tapeline.books.reader import ReadPoint
from tapeline.books.reasons import details_of, sentence_of
from tapeline.books.schemas import KEY_SEPARATOR, key_words
from tapeline.store.duckdb import connect, register_table

Row = dict[str, Any]
# A record's bytes as text. DuckDB writes quotes of what is not UTF-8 as hexadecimal.
TEXT = "coalesce(try(decode(_raw)), replace(cast(_raw as varchar), '\\x22', '\"'))"


def find_records(books: Books, key: str, limit: int) -> list[Row]:
    """The verdicts on records with this key, or one column of it, in the order of the batches.

    Unreadable records have no key: of these, the ones whose text contains it as a word.
    """
    cut = books.cut()
    found: list[Row] = []
    for table in books.plan.tables:
        if table.key:
            found += _found_in(books, table.name, (key, cut), limit)
    found = sorted(found, key=lambda row: row["batch"])[:limit]
    places = [row.pop("place") for row in found]
    origins = origins_at(books, [place.whole for place in places])
    return [
        {**row, **origin_facts(origins.get(place.whole, {}))}
        for row, place in zip(found, places, strict=True)
    ]


def _found_in(books: Books, table: str, asked: tuple[str, ReadPoint], limit: int) -> list[Row]:
    key, cut = asked
    batch = cut.batch
    with connect() as connection:
        if not books.view(connection, "r", cut.register(table), batch):
            return []
        register_table(connection, "c", books.layout.commits, (0, batch))
        row = row_column(has_rows(connection, "r"))
        rows = connection.execute(
            f"select _position.source, _position.part, _position.at, {row}, _key, _verdict, "
            "_sign, _cause, _reasons, _batch, c.at from r "
            "left join c on c.batch = r._batch and c.event = 'published' "
            "where _row = 0 and _batch <= ? and (list_contains(string_split(_key, ?), ?) "
            "or _key = replace(?, ' / ', ?) or (_key is null and _verdict = 'quarantined' "
            f"and regexp_matches({TEXT}, ?))) "
            "order by _batch, _position, _sign limit ?",
            [batch, KEY_SEPARATOR, key, key, KEY_SEPARATOR, _as_word(key), limit],
        ).fetchall()
    return [
        {
            "place": Position(*place),
            "position": Position(*place).text,
            "table": table,
            "key": key_words(one) if one is not None else None,
            "verdict": verdict,
            "taken_back": sign < 0,
            "cause": cause,
            "reasons": list(map(sentence_of, reasons or ())),
            "details": details_of(reasons or ()),
            "batch": of_batch,
            "at": at,
        }
        for *place, one, verdict, sign, cause, reasons, of_batch, at in rows
    ]


def _as_word(key: str) -> str:
    """A pattern for a key that is not a part of a longer one."""
    return rf"(^|[^\w-]){re.escape(key)}($|[^\w-])"
