"""What a SELECT in Spark's dialect reads, found in its text before Spark starts.

No parser at hand reads this dialect (LATERAL VIEW, GROUP BY window(...)), so this module knows
words, quotes, comments, parentheses and where the clauses of a SELECT begin, and no more. It
decides two things: which names a SELECT reads, and where the place of a record has to go through.
Both are proved by Spark's own analysis, which sees nothing but the tables it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tapeline.sql.tokens import Group, Items, NotASelectError, Token, grouped, said

POSITION = "_position"
# Words that end the list of tables after FROM.
AFTER_FROM = {"where", "group", "having", "order", "sort", "cluster", "distribute", "limit",
              "offset", "window", "qualify", "union", "except", "minus", "intersect"}  # fmt: skip
# Words that follow a table and are no alias of it.
NOT_AN_ALIAS = AFTER_FROM | {"join", "inner", "left", "right", "full", "cross", "semi", "anti",
                             "natural", "on", "using", "lateral", "pivot", "unpivot",
                             "tablesample"}  # fmt: skip
AGGREGATES = {"sum", "count", "avg", "mean", "min", "max"}


@dataclass(frozen=True)
class Source:
    """What stands after FROM or JOIN: a name or a query, and how its columns are called."""

    name: Token | None
    query: Query | None
    alias: str


@dataclass(frozen=True)
class Core:
    """One SELECT: its columns, what it reads and whether it adds rows up."""

    columns: tuple[Items, ...]
    end: int  # where the list of columns ends
    sources: tuple[Source, ...]
    aggregates: bool
    rest: Items  # everything after its columns


@dataclass(frozen=True)
class Query:
    """SELECTs after a WITH."""

    named: dict[str, Query]
    cores: tuple[Core, ...]
    inside: tuple[Query, ...]  # queries in conditions and expressions


@dataclass(frozen=True)
class SparkSelect:
    """One SELECT of a step."""

    sql: str
    query: Query

    @property
    def names(self) -> tuple[str, ...]:
        """The tables it reads, in the order of reading."""
        return tuple(dict.fromkeys(token.word for token in _tables(self.query, frozenset())))

    @property
    def windows(self) -> set[str]:
        """The columns that are windows of time."""
        return {name for core in _cores(self.query) for name in _windows(core)}

    def over(self, views: dict[str, str], stream: str | None) -> str:
        """The text over views of other names, with the place of each record of `stream` in it."""
        edits = [(token, views[token.word]) for token in _tables(self.query, frozenset())]
        aliased = {id(s.name) for core in _cores(self.query) for s in core.sources if s.alias}
        changes = [
            (one.start, len(one.text), view if id(one) in aliased else f"{view} as {one.text}")
            for one, view in edits
        ]
        if stream is not None:
            changes += [(at, 0, f", {what} ") for at, what in _lacking(self.query, stream)]
        text = self.sql
        for start, length, new in sorted(changes, reverse=True):
            text = text[:start] + new + text[start + length :]
        return text


def parse_select(sql: str) -> SparkSelect:
    """What a text says. Raises NotASelectError."""
    items = grouped(sql)
    if not items or said(items[0]) not in ("select", "with"):
        raise NotASelectError("must be one SELECT, or WITH ... SELECT")
    if any(said(item) == ";" for item in items):
        raise NotASelectError("must be one SELECT, without ';'")
    return SparkSelect(sql, _query(items, len(sql)))


def _query(items: Items, end: int) -> Query:
    named: dict[str, Query] = {}
    at = next((i for i, item in enumerate(items) if said(item) == "select"), len(items))
    for before, item in pairwise(items[:at]):
        if isinstance(item, Group) and said(before) == "as" and item.is_query:
            name = _name_before(items, items.index(before))
            named[name] = _query(item.items, _end(item.items, end))
    cores, inside = [], []
    starts = [i for i in range(at, len(items)) if said(items[i]) == "select"]
    for start, stop in zip(starts, [*starts[1:], len(items)], strict=True):
        core = _core(items[start + 1 : stop], end)
        cores.append(core)
        read = {id(one) for one in _relations(core.rest)}
        inside += [
            _query(group.items, _end(group.items, end))
            for group in _groups([*(i for column in core.columns for i in column), *core.rest])
            if group.is_query and id(group) not in read
        ]
    return Query(named, tuple(cores), tuple(inside))


def _end(items: Items, end: int) -> int:
    last = items[-1]
    return last.start if isinstance(last, Token) and last.kind == "end" else end


def _name_before(items: Items, at: int) -> str:
    """The name that WITH gives; there may be a list of columns between."""
    found = items[at - 2] if isinstance(items[at - 1], Group) else items[at - 1]
    return found.word if isinstance(found, Token) else ""


def _core(items: Items, end: int) -> Core:
    start = next((i for i, item in enumerate(items) if _is_from(items, i)), len(items))
    following = items[start] if start < len(items) else None
    place = following.start if isinstance(following, Token) else _end(items, end)
    columns = tuple(_split(items[:start]))
    rest = items[start + 1 :]
    words = {said(item) for item in rest}
    adds_up = bool({"group", "pivot"} & words) or any(_adds_up(column) for column in columns)
    return Core(columns, place, tuple(_sources(rest, end)), adds_up, rest)


def _is_from(items: Items, at: int) -> bool:
    """FROM, but not that of IS DISTINCT FROM."""
    return said(items[at]) == "from" and not (at and said(items[at - 1]) == "distinct")


def _split(items: Items) -> Iterator[Items]:
    """The columns of a SELECT."""
    column: Items = []
    for item in items:
        if said(item) == ",":
            yield column
            column = []
        elif not (isinstance(item, Token) and item.kind == "end"):
            column.append(item)
    yield column


def _adds_up(column: Items) -> bool:
    """Whether a column is an aggregate of its own; one OVER other rows is none."""
    pairs = pairwise(column)
    called = any(said(a) in AGGREGATES and isinstance(b, Group) for a, b in pairs)
    return called and not any(said(item) == "over" for item in column)


def _relations(items: Items) -> Iterator[Token | Group]:
    """The items after FROM, JOIN and the commas between tables."""
    expected, listing = True, True
    for item in items:
        word = said(item)
        if word in AFTER_FROM:
            return
        if expected and word == "lateral":
            continue
        if expected:
            expected = False
            if isinstance(item, Group) and not item.is_query:
                yield from _relations(item.items)
            else:
                yield item
        elif word in ("lateral", "pivot", "unpivot"):
            listing = False
        elif word == "join" or (word == "," and listing):
            expected = True


def _sources(items: Items, end: int) -> Iterator[Source]:
    for item in _relations(items):
        around = _around(items, item)
        at = next(i for i, one in enumerate(around) if one is item)
        after = around[at + 1 :]
        if isinstance(item, Group):
            yield Source(None, _query(item.items, _end(item.items, end)), _alias(after))
        elif item.names and after and isinstance(after[0], Group):
            continue  # a function that makes rows
        elif item.names and after and said(after[0]) == ".":
            raise NotASelectError(
                f"reads '{item.word}.…'. A step reads sources, tables and references by the names "
                "that the pipeline gives them"
            )
        elif item.names and item.word != "values":
            yield Source(item, None, _alias(after))


def _around(items: Items, one: Token | Group) -> Items:
    """The list that an item stands in: tables may be joined in parentheses."""
    if any(item is one for item in items):
        return items
    inner = [item.items for item in items if isinstance(item, Group)]
    return next(found for found in (_around(i, one) for i in inner) if found)


def _alias(after: Items) -> str:
    named = after[1:] if after and said(after[0]) == "as" else after
    first = named[0] if named else None
    if isinstance(first, Token) and first.names and said(first) not in NOT_AN_ALIAS:
        return first.text
    return ""


def _groups(items: Items) -> Iterator[Group]:
    """All parentheses, but not those inside a query of its own."""
    for item in items:
        if isinstance(item, Group):
            yield item
            if not item.is_query:
                yield from _groups(item.items)


def _cores(query: Query) -> Iterator[Core]:
    for core in query.cores:
        yield core
        for source in core.sources:
            if source.query:
                yield from _cores(source.query)
    for inner in (*query.named.values(), *query.inside):
        yield from _cores(inner)


def _tables(query: Query, known: frozenset[str]) -> Iterator[Token]:
    """The names that are read, but for those that a WITH gives."""
    for name, inner in query.named.items():
        yield from _tables(inner, known)
        known |= {name}
    for core in query.cores:
        for source in core.sources:
            if source.query:
                yield from _tables(source.query, known)
            elif source.name and source.name.word not in known:
                yield source.name
    for inner in query.inside:
        yield from _tables(inner, known)


def _lacking(query: Query, stream: str) -> Iterator[tuple[int, str]]:
    """Where the place of a record must be added to a list of columns, and as what."""
    carrying = {stream}
    for name, inner in query.named.items():
        yield from _lacking(inner, stream)
        carrying.discard(name)
        if _carries(inner, carrying):
            carrying.add(name)
    for core in query.cores:
        for source in core.sources:
            if source.query:
                yield from _lacking(source.query, stream)
        found = next((s for s in core.sources if _gives(s, carrying)), None)
        if found and not core.aggregates and not any(_is_star(c, found) for c in core.columns):
            called = found.alias or (found.name.text if found.name else "")
            yield core.end, f"{called}.{POSITION}" if called else POSITION


def _gives(source: Source, carrying: set[str]) -> bool:
    if source.query:
        return _carries(source.query, carrying)
    return bool(source.name and source.name.word in carrying)


def _carries(query: Query, carrying: set[str]) -> bool:
    """Whether the rows of a query still have the place of a record."""
    return any(
        not core.aggregates and any(_gives(s, carrying) for s in core.sources)
        for core in query.cores
    )


def _is_star(column: Items, source: Source) -> bool:
    """Whether a column is `*`, or `name.*` of this source, or the place itself."""
    words = [item.word for item in column if isinstance(item, Token)]
    called = (source.alias or (source.name.word if source.name else "")).strip("`").lower()
    return words[:1] == ["*"] or words[:3] == [called, ".", "*"] or words[-1:] == [POSITION]


def _windows(core: Core) -> Iterator[str]:
    grouped = any(said(a) == "window" and isinstance(b, Group) for a, b in pairwise(core.rest))
    for column in core.columns:
        called = len(column) > 1 and isinstance(column[1], Group)
        if column and said(column[0]) == "window" and (called or grouped):
            last = column[-1]
            opened = any(said(item) == "." for item in column)
            if isinstance(last, Token) and last.names and not opened:
                yield last.word
            elif isinstance(last, Group):
                yield "window"
