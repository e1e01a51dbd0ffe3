"""Deliveries on the tape: files, ranges of offsets, pulls and polls, newest first.

The rows of tape_batches name them, registers have the verdicts of their records. Reading goes back
from the newest row, so that the cost follows what is shown, not what there ever was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, get_args

from tapeline.books.commits import read_commits
from tapeline.books.layout import Layout
from tapeline.books.reader import Books, ReadPoint
from tapeline.store.duckdb import (
    Connection,
    connect,
    newest_batch,
    register_table,
    register_tape,
)

State = Literal["waiting", "on the tape", "booked", "empty", "rejected", "retried", "dismissed"]
STATES: tuple[str, ...] = get_args(State)
Verdicts = dict[str, dict[str, int]]  # by table: how many records have which verdict
BATCHES_PER_READ, MOST_PER_READ = 100, 20_000


@dataclass(frozen=True)
class Delivery:
    """What is known about one delivery."""

    source: str
    kind: str
    name: str
    state: State
    id: str | None = None  # None while it waits: it has no number yet
    arrived_at: datetime | None = None
    records: int | None = None
    bytes: int | None = None
    offsets: tuple[int, int] | None = None  # first and last, of a topic's partition
    batch: int | None = None  # the first batch that processed records of it
    published_at: datetime | None = None
    verdicts: Verdicts = field(default_factory=dict)
    problem: str | None = None
    decided: dict[str, str] | None = None  # who retried or dismissed a rejected file
    kept_as: str | None = None  # where a rejected file is
    number: int = 0  # of its delivery on the tape
    tape: tuple[int, int] = (0, 0)  # its first and last tape batch
    pieces: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """Its name, with the offsets of a range."""
        if self.offsets is None:
            return self.name
        return f"{self.name} offsets {self.offsets[0]} to {self.offsets[1]}"

    def facts(self) -> dict[str, Any]:
        """What a program gets."""
        hidden = ("number", "tape", "pieces")
        return {name: value for name, value in vars(self).items() if name not in hidden}


@dataclass(frozen=True)
class DeliveryFilter:
    """Which deliveries: by state, source, a part of the name, or the number on the tape."""

    state: str | None = None
    source: str | None = None
    name: str | None = None
    number: int | None = None

    def holds(self, one: Delivery) -> bool:
        return (
            self.state in (None, one.state)
            and self.source in (None, one.source)
            and (self.name is None or self.name in one.title)
            and self.number in (None, one.number)
        )


@dataclass(frozen=True)
class TapeOfSource:
    """Which tape is read, what its deliveries are, and through which batch it is in the books."""

    layout: Layout
    source: str
    kind: str
    booked: int

    def newest_first(self, wanted: DeliveryFilter) -> Iterator[Delivery]:
        """The deliveries on the tape, without verdicts; the filter may let others through."""
        group: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for row in self._rows(wanted):
            for part in reversed(json.loads(row["deliveries"])):
                if group and group[0][1]["delivery"] != part["delivery"]:
                    yield self._delivery(group)
                    group = []
                group.append((row, part))
        if group:
            yield self._delivery(group)

    def _rows(self, wanted: DeliveryFilter) -> Iterator[dict[str, Any]]:
        folder = self.layout.tape_batches(self.source)
        last, step = newest_batch(folder), BATCHES_PER_READ
        first_wanted = self.booked + 1 if wanted.state == "on the tape" else 1
        while last >= first_wanted:
            first = max(first_wanted, last - step + 1)
            yield from _rows_between(folder, first, last, wanted)
            last, step = first - 1, min(2 * step, MOST_PER_READ)

    def _delivery(self, group: list[tuple[dict[str, Any], dict[str, Any]]]) -> Delivery:
        rows, parts = [row for row, _ in group], [part for _, part in group]
        records = sum(part["records"] for part in parts)
        tape = rows[-1]["batch"], rows[0]["batch"]
        state: State = "booked" if tape[1] <= self.booked else "on the tape"
        lines = [part[side] for part in parts for side in ("first_line", "last_line")]
        return Delivery(
            source=self.source,
            kind=self.kind,
            name=parts[0]["name"],
            state=state if records else "empty",
            id=f"{self.source}:{parts[0]['delivery']}",
            arrived_at=rows[-1]["at"],
            records=records,
            bytes=parts[0]["bytes"],
            offsets=(min(lines), max(lines)) if self.kind == "offsets" else None,
            number=parts[0]["delivery"],
            tape=tape,
            pieces=tuple(sorted({piece for row in rows for piece in row["pieces"]})),
        )


def _rows_between(
    folder: Any, first: int, last: int, wanted: DeliveryFilter
) -> list[dict[str, Any]]:
    """Rows of tape_batches, the newest first; those that cannot match are left out."""
    # Offsets are not in a name; what is in quotes there is how JSON writes it.
    name = json.dumps(wanted.name)[1:-1] if wanted.name and " offsets" not in wanted.name else ""
    empty = '"records": 0' if wanted.state == "empty" else ""
    number = f'"delivery": {wanted.number},' if wanted.number is not None else ""
    with connect() as connection:
        if not register_table(connection, "listed", folder, (first, last)):
            return []
        rows = connection.execute(
            'select batch, "at", pieces, deliveries from listed where batch between ? and ? '
            "and contains(deliveries, ?) and contains(deliveries, ?) and contains(deliveries, ?) "
            "order by batch desc",
            [first, last, name, empty, number],
        ).fetchall()
    names = ("batch", "at", "pieces", "deliveries")
    return [dict(zip(names, row, strict=True)) for row in rows]


def with_verdicts(books: Books, cut: ReadPoint, shown: Sequence[Delivery]) -> list[Delivery]:
    """The same deliveries, each with its batch and how many of its records have which verdict."""
    found = list(shown)
    for source in {one.source for one in shown if one.pieces}:
        of_source = [one for one in shown if one.source == source and one.records and one.pieces]
        counted = _counted(books, cut, source, of_source)
        found = [counted.get(one.id or "", one) for one in found]
    return found


def _counted(
    books: Books, cut: ReadPoint, source: str, shown: Sequence[Delivery]
) -> dict[str, Delivery]:
    position = cut.commit.positions.get(source)
    shown = [one for one in shown if position and one.tape[0] <= position.last]
    if not shown or not cut.batch:
        return {}
    first = batch_of(books, source, min(one.tape[0] for one in shown), cut.batch)
    verdicts: dict[int, Verdicts] = {one.number: {} for one in shown}
    batches: dict[int, int] = {}
    with connect() as connection:
        if not span(connection, books, shown):
            return {}
        for table in tables_of(books, source):
            if not view_since(connection, books, cut, table, first):
                continue
            for number, verdict, count, batch in connection.execute(
                f"select s.delivery, _verdict, sum(_sign)::bigint, min(_batch) {SPANNED} "
                "where _row = 0 and _batch <= ? and r._position.source = ? group by all order by 2",
                [cut.batch, source],
            ).fetchall():
                batches[number] = min(batch, batches.get(number, batch))
                if count > 0:
                    verdicts[number].setdefault(table, {})[verdict] = count
        times = _published(connection, books, batches.values())
    return {
        one.id or "": replace(
            one,
            verdicts=verdicts[one.number],
            batch=batches.get(one.number),
            published_at=times.get(batches.get(one.number, 0)),
        )
        for one in shown
    }


# The rows of a register that belong to the spans of some deliveries.
SPANNED = (
    "from r join spans s on r._position.part = s.part and r._position.at between s.low and s.high"
)


def span(connection: Connection, books: Books, shown: Sequence[Delivery]) -> bool:
    """Make `spans`: which places of which part each delivery has. Small files share a part."""
    pieces = sorted({piece for one in shown for piece in one.pieces})
    folder = books.layout.tape(shown[0].source)
    if not register_tape(connection, "tape", folder, (pieces[0], pieces[-1])):
        return False
    numbers = ", ".join(str(one.number) for one in shown)
    connection.execute(
        "create or replace temp table spans as select delivery, part, "
        'min(tape."at") as low, max(tape."at") as high from tape '
        f"where part in ({', '.join(map(str, pieces))}) and delivery in ({numbers}) group by all"
    )
    return True


def view_since(
    connection: Connection, books: Books, cut: ReadPoint, table: str, first: int
) -> bool:
    """Make a register readable as `r`, from a batch on; False when it has no rows.

    A register of a later generation has batches of its own: all of it is read.
    """
    folder = books.layout.table(cut.register(table))
    since = first if cut.commit.generation_of(table) == 1 else 0
    return register_table(connection, "r", folder, (since, cut.batch))


def tables_of(books: Books, source: str) -> list[str]:
    """The tables that records of a source reach, the first one first."""
    plan = books.plan
    return [one.name for one in plan.tables if plan.entry_of(one.name).stream == source]


def batch_of(books: Books, source: str, tape_batch: int, last: int) -> int:
    """The batch that processed a tape batch. Looks back from the last batch, then halves."""
    high, step = last, 1
    while high > 1 and _reached(books, source, max(1, high - step)) >= tape_batch:
        high, step = max(1, high - step), 2 * step
    low = max(1, high - step)
    while low < high:
        middle = (low + high) // 2
        if _reached(books, source, middle) >= tape_batch:
            high = middle
        else:
            low = middle + 1
    return low


def _reached(books: Books, source: str, batch: int) -> int:
    """Through which tape batch a source was in the books after a batch."""
    rows = read_commits(books.layout.commits, batch, batch)
    positions = next((row.commit.positions for row in rows if row.decides), {})
    return positions[source].last if source in positions else 0


def _published(connection: Connection, books: Books, batches: Any) -> dict[int, datetime]:
    wanted = sorted(set(batches))
    if not wanted:
        return {}
    register_table(connection, "c", books.layout.commits, (wanted[0], wanted[-1]))
    listed = ", ".join(map(str, wanted))
    rows = connection.execute(
        f"select batch, \"at\" from c where event = 'published' and batch in ({listed})"
    ).fetchall()
    return dict(rows)
