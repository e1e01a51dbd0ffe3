"""The books as views, in SQL that other tools run: folded tables, never journals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pyarrow as pa

from tapeline.books.columns import measures
from tapeline.books.exact import OVERFLOW, Kind
from tapeline.books.fold import folded, status_of, typed
from tapeline.books.measures import measures_of
from tapeline.books.reader import Books, standing
from tapeline.books.schemas import UNREAD
from tapeline.books.sql_dialects import Dialect, in_comment
from tapeline.declare import Summary, View
from tapeline.declare.duration import parse_duration
from tapeline.plan.views import view_inputs
from tapeline.store.delta_files import stored_schema

# One row: the last published batch, the clocks and the references' versions it saw. No declared
# name begins with '_'.
PUBLISHED = "_published"


@dataclass(frozen=True)
class Statement:
    """One view: its name, what it is, and the SQL that makes it; `refused` says why it is not."""

    name: str
    kind: str
    about: str
    sql: str
    refused: str = ""

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """The statement with its comment; one that is refused is a comment as a whole."""
        title = f"-- {self.kind} {self.name}" + (f": {self.about}" if self.about else "") + "\n"
        if not self.refused:
            return f"{title}{self.sql}\n;\n"
        reason = f"-- Left out: {in_comment(self.refused)}\n"
        return title + reason + indent(self.sql, "-- ", lambda line: True) + "\n"


def views_of(
    books: Books, dialect: Dialect, refused: Mapping[str, str] | None = None
) -> list[Statement]:
    """A view for everything declared but the sources, each after what it reads.

    `refused` says which declared views the engine does not understand, and why.
    """
    plan = books.plan.pipeline
    writer = _Writer(books, dialect)
    found = [writer.published()]
    found += [writer.reference(name) for name in plan.references]
    found += [writer.table(name, table.about) for name, table in plan.tables.items()]
    for summary in plan.summaries.values():
        found.append(writer.summary(summary))
        if summary.time is not None and f"{summary.name}_running" not in plan.declared:
            found.append(writer.running(summary, summary.time))
    left_out = dict(refused or {})
    for view in plan.views.values():
        found.append(_declared(books, dialect, view, left_out))
    return found


def as_text(books: Books, dialect: Dialect, statements: list[Statement]) -> str:
    """All views as one file of SQL."""
    head = [
        f"The books of '{books.plan.name}' as views for {dialect.name}, from 'tapeline views'.",
        f"Books: {in_comment(str(books.layout.home))}",
        *dialect.notes,
    ]
    lines = [f"-- {line}\n" for line in head] + [f"{line};\n" for line in dialect.settings]
    return "".join(lines) + "\n" + "\n".join(one.text() for one in statements)


def _declared(books: Books, dialect: Dialect, view: View, left_out: dict[str, str]) -> Statement:
    """A declared view, in its own words."""
    for name in view_inputs(books.plan.pipeline, view):
        if name in left_out:
            left_out.setdefault(view.name, f"it reads {name}, which is left out")
    sql = f"create or replace view {dialect.quoted(view.name)} as\n{dedent(view.sql).strip()}"
    return Statement(view.name, "view", "", sql, left_out.get(view.name, ""))


class _Writer:
    """Writes the views that Tapeline itself knows how to make."""

    def __init__(self, books: Books, dialect: Dialect) -> None:
        self._plan = books.plan
        self._layout = books.layout
        self._point = books.cut()
        self._dialect = dialect
        self._quoted = dialect.quoted
        self._cut = dialect.quoted(PUBLISHED)

    def published(self) -> Statement:
        clocks = {self._clock(s) for s in self._plan.summaries if s.time is not None}
        sql = self._dialect.published(sorted(clocks), sorted(self._plan.pipeline.references))
        return self._view(PUBLISHED, "cut", "the last published batch, shown by all views", sql)

    def reference(self, name: str) -> Statement:
        """The version that the last published batch saw; before the first one, the newest."""
        stored, shape = self._stored(self._layout.reference(name))
        sql = (
            f"select {self._columns(shape, '_batch')}\nfrom {stored} as stored\n"
            f"where _batch = (select coalesce(cut.version_{name}, newest._batch) from {self._cut} "
            f"as cut cross join (select max(_batch) as _batch from {stored}) as newest)"
        )
        return self._view(name, "reference", "", sql)

    def table(self, name: str, about: str) -> Statement:
        """The rows that count: kept, and not taken back by a later batch."""
        stored, shape = self._stored(self._layout.table(self._point.register(name)))
        sql = (
            f"with register as (\n    select * from {stored}\n"
            f"    where _batch <= (select batch from {self._cut})\n)\n"
            f"select {self._columns(shape, *UNREAD)}\n"
            f"from ({standing('register', None, 'kept')}) as kept"
        )
        return self._view(name, "table", about, sql)

    def summary(self, summary: Summary) -> Statement:
        """The journal folded: one row per key."""
        stored, shape = self._stored(self._layout.table(self._point.journal(summary.name)))
        kinds = self._kinds(summary, shape)
        key = [self._quoted(name) for name in summary.key]
        rows = f"{stored} where _batch <= (select batch from {self._cut})"
        sums = self._dialect.sums(stored, self._named(kinds))
        fold = folded(rows, key, sums, ", max(_clock) as _clock")
        status, cut = "", ""
        if summary.time is not None:
            starts = self._dialect.micros(
                self._quoted(summary.time), shape.field(summary.time).type
            )
            final_after = parse_duration(self._plan.pipeline.final_after)
            clock = f"cut.clock_{self._clock(summary)}"
            status = ",\n    " + status_of(summary, final_after, clock, "_clock", starts)
            status, cut = f"{status} as _status", f" cross join {self._cut} as cut"
        numbers, overflow = typed(kinds, self._quoted, self._dialect.name)
        columns = ",\n    ".join([", ".join(key), *numbers, "_entries"])
        sql = (
            f"select\n    {columns}{status},\n    {overflow}\nfrom (\n    {fold}\n) as folded{cut}"
        )
        return self._view(summary.name, "summary", summary.about, sql)

    def running(self, summary: Summary, time: str) -> Statement:
        """A summary's measures added up over time, apart for every value of the other keys."""
        stored, shape = self._stored(self._layout.table(self._point.journal(summary.name)))
        others = [self._quoted(name) for name in summary.key if name != time]
        apart = f"partition by {', '.join(others)} " if others else ""
        over = (
            f" over ({apart}order by {self._quoted(time)} "
            "rows between unbounded preceding and current row)"
        )
        kinds = self._kinds(summary, shape)
        added = {one.name: one.kind for one in measures_of(kinds) if one.adds_up}
        sums = self._dialect.sums(stored, self._named(added), over)
        columns = [self._quoted(name) for name in summary.key]
        outgrown = [f"bool_or({OVERFLOW}){over}"]
        for name in (one.name for one in measures_of(kinds)):
            measure, running = self._quoted(name), self._quoted(f"running_{name}")
            columns.append(measure)
            if name in added and f"running_{name}" not in shape.names:
                total = f"try_cast({sums[measure]} as {kinds[name].sql})"
                known = f"case when not bool_or({OVERFLOW}){over} then {total} end"
                columns.append(f"{known} as {running}")
                outgrown.append(f"{total} is null")
        columns.append(f"({' or '.join(outgrown)}) as {OVERFLOW}")
        listed = ",\n    ".join(columns)
        sql = f"select\n    {listed}\nfrom {self._quoted(summary.name)}"
        about = f"{summary.name} added up over {time}"
        return self._view(f"{summary.name}_running", "running totals", about, sql)

    def _kinds(self, summary: Summary, shape: pa.Schema) -> dict[str, Kind]:
        """The measures as they are stored, with their types."""
        return {n: Kind.of(shape.field(n).type) for n in measures(summary, shape)}

    def _named(self, kinds: dict[str, Kind]) -> dict[str, Kind]:
        """Measures as SQL names them."""
        return {self._quoted(name): kind for name, kind in kinds.items()}

    def _clock(self, summary: Summary) -> str:
        """The table whose clock tells the status of a summary's windows."""
        return self._plan.entry_of(summary.stream).name

    def _stored(self, folder: Path) -> tuple[str, pa.Schema]:
        shape = stored_schema(folder)
        return self._dialect.stored(folder, shape), shape

    def _columns(self, shape: pa.Schema, *unread: str) -> str:
        return ", ".join(self._quoted(name) for name in shape.names if name not in unread)

    def _view(self, name: str, kind: str, about: str, sql: str) -> Statement:
        made = f"create or replace view {self._quoted(name)} as\n{sql}"
        return Statement(name, kind, about, made)
