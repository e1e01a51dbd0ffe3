"""The outbox of a sink: what a published batch sends, read from the books themselves.

Registers and journals are append-only and numbered by batch, so the books are the outbox: reading
a batch again gives the same rows in the same order, whatever compaction did to its files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from decimal import localcontext
from itertools import groupby
from typing import Any

import pyarrow as pa

from tapeline.books import Layout
from tapeline.books.commits import read_commits
from tapeline.books.fold import fold_view, measures_of
from tapeline.books.query import connect, quoted, register_table
from tapeline.declare import Sink, Summary
from tapeline.errors import OperationError
from tapeline.plan import Plan
from tapeline.run.sinks.alerts import events, shape
from tapeline.show import plain

Row = dict[str, Any]
BATCHES_PER_READ, ROWS_PER_READ = 200, 20_000
EXACT_DIGITS = 60  # sums of decimals of 38 digits
PLACE = "concat_ws('/', r._position.source, r._position.part, r._position.at)"
# What the books keep of a register for themselves.
UNSENT = ("_raw", "_content_hash", "_key_hash", "_row", "_verdict", "_reasons", "_sequence")


@dataclass(frozen=True)
class Place:
    """A batch of certain books: the hash of its commits row tells whose."""

    batch: int = 0
    hash: str = ""


@dataclass(frozen=True)
class Outgoing:
    """What one batch sends. `schema` has the types of the columns that came from the books."""

    place: Place
    rows: list[Row]
    schema: pa.Schema


class Outbox:
    """What the published batches of some books send to one sink."""

    def __init__(self, plan: Plan, layout: Layout, sink: Sink) -> None:
        self._layout = layout
        self._sink = sink
        self._alert = plan.pipeline.alerts.get(sink.reads)
        self._reads = self._alert.reads if self._alert else sink.reads
        self._summary = plan.pipeline.summaries.get(self._reads)

    def after(self, batch: int, published: int, rows: int) -> tuple[Place, list[Outgoing]]:
        """What comes behind a batch, at least one batch and about so many rows of the books.

        Also the place that is reached: batches that send nothing are not among the outgoing.
        """
        places = self._places(batch + 1, min(published, batch + BATCHES_PER_READ), rows)
        if not places:
            raise OperationError(
                f"the books lack batch {batch + 1}, which sink {self._sink.name} sends next. "
                "Restore them from a backup."
            )
        last = max(places)
        found = self._changes if self._summary else self._rows
        schema, came = found(batch + 1, last)
        if self._alert:
            schema = shape(schema)
        outgoing = []
        for number, of_batch in groupby(came, key=lambda row: int(row["_batch"])):
            sent = self._send(list(of_batch))
            if sent:
                outgoing.append(Outgoing(Place(number, places[number]), sent, schema))
        return Place(last, places[last]), outgoing

    def all_rows(self, published: int) -> list[Row]:
        """Everything that is sent through a batch."""
        sent: list[Row] = []
        reached = 0
        while reached < published:
            place, outgoing = self.after(reached, published, ROWS_PER_READ)
            reached = place.batch
            sent += [row for one in outgoing for row in one.rows]
        return sent

    def hash_of(self, batch: int) -> str | None:
        """The hash of a published batch; None when these books have none of that number."""
        return self._hashes(batch, batch).get(batch)

    def _hashes(self, first: int, last: int) -> dict[int, str]:
        rows = read_commits(self._layout.commits, first, last)
        return {row["batch"]: row["hash"] for row in rows if row["event"] == "published"}

    def _places(self, first: int, last: int, limit: int) -> dict[int, str]:
        """The batches that are read together, each with its hash."""
        places: dict[int, str] = {}
        count = 0
        for row in read_commits(self._layout.commits, first, last):
            if row["event"] != "decided":
                continue
            facts = json.loads(row["body"])["tables"].get(self._reads, {})
            count += facts.get("rows", 0)
            if places and count > limit:
                break
            places[row["batch"]] = row["hash"]
        return places

    def _send(self, rows: list[Row]) -> list[Row]:
        """The user's function over a batch; what it gives must be dictionaries."""
        if self._alert:
            rows = list(events(self._alert, rows))
        sent = list(self._sink.function(rows) or ()) if rows else []
        wrong = next((one for one in sent if not isinstance(one, dict)), None)
        if wrong is not None:
            raise OperationError(
                f"{self._sink.where}: {self._sink.name}() gave a {type(wrong).__name__}. A sink "
                "gives a list of dictionaries, one per message."
            )
        return sent

    def _rows(self, first: int, last: int) -> tuple[pa.Schema, Iterator[Row]]:
        """Kept rows that came (`_sign` 1) or were taken back (-1), in the order of the tape."""
        folder = self._layout.register(self._reads)
        with connect() as connection:
            if not register_table(connection, "r", folder, (first, last)):
                return pa.schema([]), iter(())
            found = connection.sql(
                f"select * exclude ({', '.join(UNSENT)}) replace ({PLACE} as _position, "
                f"coalesce(_key, {PLACE}) as _key) from r where _verdict = 'kept' "
                f"and _batch between {first} and {last} order by _batch, r._position.source, "
                "r._position.part, r._position.at, _row, _sign"
            ).to_arrow_table()
        return found.schema, _as_rows(found)

    def _changes(self, first: int, last: int) -> tuple[pa.Schema, Iterator[Row]]:
        """Numbers that changed, each with what it was and what it is, in the order of the key."""
        assert self._summary is not None
        with connect() as connection:
            folder = self._layout.journal(self._summary.name)
            if not register_table(connection, "j", folder, (first, last)):
                return pa.schema([]), iter(())
            measures = measures_of(connection, "j", self._summary)
            query = "select column_name, column_type from (describe j)"
            types = {n: t for n, t in connection.execute(query).fetchall() if n in measures}
            moved = connection.sql(_moved(self._summary, types, first, last)).to_arrow_table()
            before: list[Row] = []
            if fold_view(connection, self._layout, self._summary, first - 1):
                connection.register("moved", moved)
                query = _standing_before(self._summary, measures)
                before = list(_as_rows(connection.sql(query).to_arrow_table()))
        return _shape(self._summary, measures, moved.schema), _walked(
            self._summary, measures, before, _as_rows(moved)
        )


def _as_rows(table: pa.Table) -> Iterator[Row]:
    """Rows as dictionaries, in a fraction of the time that Arrow takes where numpy can help."""
    columns = [_values(column) for column in table.columns]
    names = table.column_names
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    found: list[Any]
    kind = column.type
    whole = pa.types.is_integer(kind) and not column.null_count
    if whole or pa.types.is_string(kind) or pa.types.is_decimal(kind):
        found = column.to_numpy().tolist()
    elif pa.types.is_timestamp(kind) and kind.tz:
        moments = column.cast(pa.timestamp("us")).to_numpy().astype("datetime64[us]").tolist()
        found = [None if one is None else one.replace(tzinfo=UTC) for one in moments]
    else:
        found = column.to_pylist()
    return found


def _moved(summary: Summary, types: dict[str, str], first: int, last: int) -> str:
    keys = ", ".join(map(quoted, summary.key))
    sums = "".join(
        f", cast(sum({quoted(name)}) as {kind}) as {quoted(name)}" for name, kind in types.items()
    )
    return (
        f"select {keys}{sums}, sum(_entries)::bigint as _entries, _batch, "
        "string_agg(distinct _cause, ', ' order by _cause) as _cause from j "
        f"where _batch between {first} and {last} group by {keys}, _batch order by _batch, {keys}"
    )


def _standing_before(summary: Summary, measures: list[str]) -> str:
    """The numbers as they stood, of the keys that moved."""
    same = " and ".join(f"f.{k} is not distinct from moved.{k}" for k in map(quoted, summary.key))
    names = ", ".join(f"f.{name}" for name in map(quoted, (*summary.key, *measures, "_entries")))
    return (
        f"select {names} from {quoted(summary.name)} f where exists "
        f"(select 1 from moved where {same})"
    )


def _walked(
    summary: Summary, measures: list[str], before: list[Row], moved: Iterator[Row]
) -> Iterator[Row]:
    """Every change of a number, batch by batch; a change that leaves it as it was is none."""
    nothing = dict.fromkeys((*measures, "_entries"), 0)
    stands = {tuple(row[k] for k in summary.key): row for row in before}
    for row in moved:
        key = tuple(row[k] for k in summary.key)
        old = stands.get(key, nothing)
        with localcontext() as context:
            context.prec = EXACT_DIGITS
            new = {name: old[name] + (row[name] or 0) for name in nothing}
        stands[key] = new
        was, is_now = (_number(one, measures) for one in (old, new))
        if was != is_now:
            yield {
                **{name: row[name] for name in summary.key},
                "_old": was,
                "_new": is_now,
                "_cause": row["_cause"],
                "_batch": row["_batch"],
                "_key": "/".join(str(plain(part)) for part in key),
            }


def _number(row: Row, measures: list[str]) -> Row | None:
    """A number exists while rows stand behind it."""
    return {name: row[name] for name in measures} if row["_entries"] > 0 else None


def _shape(summary: Summary, measures: list[str], moved: pa.Schema) -> pa.Schema:
    number = pa.struct([moved.field(name) for name in measures])
    own = [moved.field(name) for name in summary.key]
    added = [("_old", number), ("_new", number), ("_cause", pa.string()), ("_batch", pa.int64())]
    return pa.schema([*own, *(pa.field(name, kind) for name, kind in added)])
