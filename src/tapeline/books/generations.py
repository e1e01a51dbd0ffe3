"""A table across its generations: what was published, whichever code wrote it.

Each generation is a table of its own and holds the whole history as its code sees it. Readers of a
moment look at the generation of that moment. Readers of a history look at the generations one
after the other: at the batch where another one took over, what differs between the two is one
change with the cause `code`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tapeline.books import exact
from tapeline.books.commit import Commit, Stood
from tapeline.books.layout import Layout
from tapeline.books.table_id import Kind, TableId
from tapeline.declare import Summary
from tapeline.store.duckdb import Connection, quoted, register_table

CODE = "code"  # the cause of a change that other code made


@dataclass(frozen=True)
class History:
    """Where the history of a table is stored, and through which batches it is wanted."""

    layout: Layout
    commit: Commit  # of the last batch, or a later one
    batches: tuple[int, int]

    def turns(self, name: str) -> list[Stood]:
        """The generations that were seen in these batches."""
        first, last = self.batches
        stood = self.commit.stood(name)
        ends = [one.since for one in stood[1:]] + [last + 1]
        return [one for one, end in zip(stood, ends, strict=True)
                if one.since <= last and end > first]  # fmt: skip

    def plain(self, name: str) -> int | None:
        """The generation that has all of these batches, if a single one has."""
        turns = self.turns(name)
        if not turns:
            return 0
        whole = len(turns) == 1 and (turns[0].since < self.batches[0] or turns[0].since == 0)
        return turns[0].generation if whole else None

    def view(self, connection: Connection, view: str, table: TableId) -> bool:
        if not table.generation:
            return False
        return register_table(connection, view, self.layout.table(table), (0, self.batches[1]))


def view_journal(connection: Connection, view: str, history: History, summary: Summary) -> bool:
    """Make a summary's entries readable across generations; False when there are none."""
    return _view(connection, view, history, _Entries(summary))


def view_links(connection: Connection, view: str, history: History, summary: Summary) -> bool:
    """Make each record's shares in a summary readable across generations."""
    return _view(connection, view, history, _Rows(Kind.LINKS, summary.name))


def view_register(connection: Connection, view: str, history: History, table: str) -> bool:
    """Make the rows of a table that count, or no longer do, readable across generations."""
    return _view(connection, view, history, _Rows(Kind.REGISTER, table, "_verdict = 'kept'"))


def _view(connection: Connection, view: str, history: History, kind: _Entries | _Rows) -> bool:
    plain = history.plain(kind.name)
    if plain is not None:
        if not plain:
            return False
        folder = history.layout.table(TableId(kind.kind, kind.name, plain))
        return register_table(connection, view, folder, history.batches)
    turns = _before(history, kind.name)
    ends = [f" and _batch < {one.since}" for one in turns[1:]] + [""]
    parts: list[str] = []
    earlier = shape = ""
    for number, (turn, until) in enumerate(zip(turns, ends, strict=True)):
        stored = f"{view}__{number}"
        table = TableId(kind.kind, kind.name, turn.generation)
        now = stored if history.view(connection, stored, table) else ""
        if turn.since and (earlier or now):
            parts += kind.moved(connection, (earlier, now), turn.since)
        if now:
            parts.append(f"select * from {now} where _batch >= {turn.since}{until}")
        earlier, shape = now, now or shape
    if not parts:
        return False
    union = " union all by name ".join(f"({part})" for part in parts)
    columns = ", ".join(map(quoted, _names(connection, shape)))
    connection.execute(f"create or replace temp view {quoted(view)} as "
                       f"select {columns} from ({union})")  # fmt: skip
    return True


def _before(history: History, name: str) -> list[Stood]:
    """The generations of these batches, and the one before them that the first is compared with."""
    turns = history.turns(name)
    stood = history.commit.stood(name)
    place = stood.index(turns[0])
    return stood[max(place - 1, 0) : place + len(turns)]


def _names(connection: Connection, view: str) -> dict[str, str]:
    rows = connection.execute(f"select column_name, column_type from (describe {quoted(view)})")
    return dict(rows.fetchall())


@dataclass(frozen=True)
class _Entries:
    """The journal of a summary: a number that moved is taken back, and booked as it is now."""

    summary: Summary
    kind = Kind.JOURNAL

    @property
    def name(self) -> str:
        return self.summary.name

    def moved(self, connection: Connection, sides: tuple[str, str], batch: int) -> list[str]:
        """The entries of both generations, of the keys whose numbers are not the same."""
        earlier, now = sides
        shape = _names(connection, now or earlier)
        key = [name for name in self.summary.key if name in shape]
        measures = [n for n in shape if n not in self.summary.key and not n.startswith("_")]
        both = []
        for view, sign in ((earlier, "-"), (now, "")):
            if not view:
                continue
            own = _names(connection, view)
            keys = [quoted(n) if n in own else f"null as {quoted(n)}" for n in key]
            sums = [f"{sign}{quoted(n)} as {quoted(n)}" if n in own
                    else f"cast(0 as {shape[n]}) as {quoted(n)}" for n in measures]  # fmt: skip
            both.append(
                f"select {', '.join([*keys, *sums])}, {sign}_entries as _entries, "
                f"'{CODE}' as _cause, cast({batch} as bigint) as _batch, _clock "
                f"from {view} where _batch < {batch}"
            )
        rows = f"({' union all '.join(both)})"
        kinds = {quoted(n): exact.Kind.of(shape[n]) for n in measures}
        totals = exact.sums_of(connection, rows, kinds)
        differs = [f"coalesce(try_cast({total} as double), 1) <> 0" for total in totals.values()]
        keys_sql = ", ".join(map(quoted, key))
        apart = " or ".join([*differs, "sum(_entries) <> 0"])
        same = " and ".join(f"b.{k} is not distinct from m.{k}" for k in map(quoted, key)) or "true"
        chosen = f"select {keys_sql} from {rows} group by {keys_sql} having {apart}"
        return [f"select b.* from {rows} b where exists (select 1 from ({chosen}) m where {same})"]


@dataclass(frozen=True)
class _Rows:
    """Rows that count or count against: those that only one of two generations has."""

    kind: Kind
    name: str
    where: str = "true"

    def moved(self, connection: Connection, sides: tuple[str, str], batch: int) -> list[str]:
        """Rows that counted and do so no more, with a minus, and those that count since."""
        earlier, now = sides
        shape = _names(connection, now or earlier)
        own = [name for name in shape if name not in APART]
        both = []
        for view, sign in ((earlier, "-"), (now, "")):
            if view:
                there = _names(connection, view)
                columns = [quoted(n) if n in there else f"null as {quoted(n)}" for n in own]
                both.append(f"select {', '.join(columns)}, {sign}_sign as _sign from {view} "
                            f"where _batch < {batch} and {self.where}")  # fmt: skip
        keys = ", ".join(map(quoted, own))
        net = (f"select {keys}, sum(_sign)::int as _net from ({' union all '.join(both)}) "
               f"group by {keys} having sum(_sign) <> 0")  # fmt: skip
        said = {"_cause": f"'{CODE}'", "_batch": f"cast({batch} as bigint)", "_sign": "sign(_net)"}
        columns = [f"cast({said.get(name, 'null')} as {shape[name]}) as {quoted(name)}"
                   for name in shape if name in APART]  # fmt: skip
        each = "(select unnest(generate_series(1, abs(_net))))"
        return [f"select {keys}, {', '.join(columns)} from ({net}) m, lateral {each}"]


# What says when and why a row was written, not what it is.
APART = ("_batch", "_cause", "_sign", "_raw", "_reasons", "_content_hash", "_key_hash")
