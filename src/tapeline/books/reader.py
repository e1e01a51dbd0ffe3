"""Reading the books of a pipeline, without Spark: one consistent cut over all tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from tapeline.books.columns import shape_of
from tapeline.books.commit import Commit, Counts
from tapeline.books.commits import published_by, read_commits, read_tail
from tapeline.books.fold import Clock, exact_rows, fold_view
from tapeline.books.layout import Layout
from tapeline.books.reasons import DETAIL
from tapeline.books.schemas import BEGINNING, OF_VERSIONS, UNREAD, VERDICTS
from tapeline.books.table_id import TableId
from tapeline.declare import Summary, Table
from tapeline.declare.duration import parse_duration
from tapeline.errors import QuestionError, did_you_mean
from tapeline.plan import Plan
from tapeline.plan.views import view_inputs
from tapeline.store.duckdb import Connection, ConversionFailed, OutOfRange, connect, register_table

# Reasons with their details, for people.
WORDED = f"list_transform(_reasons, lambda one: replace(one, '{DETAIL}', ': '))"


@dataclass(frozen=True)
class ReadPoint:
    """The last published batch at some moment, and what its row said."""

    batch: int
    at: datetime | None
    commit: Commit

    def register(self, table: str) -> TableId:
        """The register that readers see at this batch."""
        return TableId.register(table, self.commit.generation_of(table))

    def journal(self, summary: str) -> TableId:
        return TableId.journal(summary, self.commit.generation_of(summary))

    def links(self, summary: str) -> TableId:
        return TableId.links(summary, self.commit.generation_of(summary))

    def clock(self, plan: Plan, summary: Summary) -> int:
        """The highest event time so far of the records in a summary, in microseconds."""
        entry = plan.entry_of(summary.stream).name
        return self.commit.clocks.get(entry, BEGINNING)


@dataclass(frozen=True)
class Answer:
    """Rows of one cut of the books; `more` when a limit left some out."""

    batch: int
    at: datetime | None
    rows: pa.Table
    more: bool = False


class Books:
    """The books as they were last published; each call reads what is there now."""

    def __init__(self, plan: Plan, home: Path) -> None:
        self.plan = plan
        self.layout = Layout(home)

    def cut(self, as_reported: datetime | None = None) -> ReadPoint:
        """The last published batch, now or at a moment."""
        rows = read_tail(self.layout.commits)
        published = [row for row in rows if row.publishes]
        if as_reported is not None and (not published or published[0].at > as_reported):
            batch = published_by(self.layout.commits, as_reported)
            rows = read_commits(self.layout.commits, batch, batch) if batch else []
            published = [row for row in rows if row.publishes]
        elif as_reported is not None:
            published = [row for row in published if row.at <= as_reported]
        if not published:
            return ReadPoint(0, None, Commit())
        batch = published[-1].batch
        decided = next(row for row in rows if row.batch == batch and row.decides)
        return ReadPoint(batch, published[-1].at, decided.commit)

    def at(self, batch: int) -> ReadPoint:
        """A batch that was published earlier; 0 is before the first one."""
        rows = read_commits(self.layout.commits, batch, batch) if batch else []
        decided = next((row for row in rows if row.decides), None)
        return ReadPoint(batch, None, decided.commit if decided else Commit())

    def read(self, name: str, as_reported: datetime | None = None) -> pa.Table:
        """A summary, view, table or reference as it stands, or as it was published by a moment."""
        with connect() as connection:
            if not self.open(connection, name, self.cut(as_reported)):
                return pa.table({})
            if name in self.plan.pipeline.summaries:
                return exact_rows(connection, self.plan.pipeline.summaries[name])
            with told(name):
                return connection.sql(f'select * from "{name}"').to_arrow_table()

    def open(self, connection: Connection, name: str, cut: ReadPoint, since: int = 0) -> bool:
        """Make anything declared readable by its name at a cut; False when it has no rows yet.

        Of a table, only what came with batch `since` or later.
        """
        plan = self.plan.pipeline
        if name in plan.tables:
            return self._register_entries(connection, plan.tables[name], cut, since)
        if name in plan.summaries or name in plan.views or name in plan.references:
            return self._register(connection, name, cut)
        hint = did_you_mean(name, set(plan.declared) - set(plan.sources))
        raise QuestionError(f"table, summary or view '{name}' not found.{hint}")

    def register(self, table: str) -> pa.Table:
        """A table's register as it stands: every verdict, and every change of one."""
        with connect() as connection:
            cut = self.cut()
            batch = cut.batch
            if not self.view(connection, "r", cut.register(table), batch):
                return pa.table({})
            return connection.sql(f"select * from r where _batch <= {batch}").to_arrow_table()

    def with_verdict(self, table: str, verdict: str) -> pa.Table:
        """The records of a table that have a verdict: where they are, why, and their bytes."""
        if verdict not in VERDICTS:
            raise QuestionError(f"'{verdict}' is not a verdict.{did_you_mean(verdict, VERDICTS)}")
        self._check_table(table)
        with connect() as connection:
            cut = self.cut()
            batch = cut.batch
            if not self.view(connection, "r", cut.register(table), batch):
                return pa.table({})
            columns = f"_position, _key, {WORDED} as _reasons, _raw, _batch"
            query = f"select {columns} from ({standing('r', batch, verdict)}) where _row = 0"
            return connection.sql(f"{query} order by _batch, _position").to_arrow_table()

    def unmatched(self, table: str) -> pa.Table:
        """The rows of a table that change a record which has not come: corrections, deletions.

        They stand all the same. A sequence is expected to start at 1: a record with a higher one
        whose key has no lower version, or a deletion of a key that never came, is unmatched.
        """
        self._check_table(table)
        keyed = self.plan.entry_of(table)
        if keyed.sequence_by is None:
            raise QuestionError(
                f"table '{keyed.name}' has no sequence_by, so it has no corrections without an "
                "original."
            )
        with connect() as connection:
            cut = self.cut()
            batch = cut.batch
            if not self.view(connection, "k", cut.register(keyed.name), batch):
                return pa.table({})
            self.view(connection, "t", cut.register(table), batch)
            alone = (
                f"select _position from k where _batch <= {batch} and _row = 0 and _sign > 0 "
                f"and _key is not null and _verdict in {OF_VERSIONS} qualify "
                "count(distinct _sequence) over (partition by _key) = 1 and "
                "(_sequence > 1 or _verdict = 'applied')"
            )
            rows = " union all ".join(standing("t", batch, word) for word in ("kept", "applied"))
            query = (
                f"select * exclude ({', '.join(UNREAD)}, _reasons) from ({rows}) "
                f"where _position in ({alone}) order by _batch, _position"
            )
            return connection.sql(query).to_arrow_table()

    def journal(self, summary: str) -> pa.Table:
        """A summary's journal as it stands, in the order it was written."""
        with connect() as connection:
            cut = self.cut()
            if not self.view(connection, "j", cut.journal(summary), cut.batch):
                return pa.table({})
            query = f"select * from j where _batch <= {cut.batch} order by _batch"
            return connection.sql(query).to_arrow_table()

    def shape(self, name: str, cut: ReadPoint | None = None) -> pa.Schema:
        """The columns of anything stored as readers see them; of what came later, today's."""
        earlier = cut.commit.generation_of(name) if cut else 0
        generation = earlier or self.cut().commit.generation_of(name)
        return shape_of(self.plan.pipeline, self.layout, name, generation)

    def view(self, connection: Connection, name: str, table: TableId, batch: int) -> bool:
        """Make a stored table readable through a batch; False when it has no rows."""
        return register_table(connection, name, self.layout.table(table), (0, batch))

    def totals(self) -> dict[str, Counts]:
        """Verdicts, causes, reasons and warnings of every table, added up over all batches."""
        return self.cut().commit.totals

    def _register(self, connection: Connection, name: str, cut: ReadPoint) -> bool:
        """Make a summary, reference or view readable by its name, and what it reads before it."""
        plan = self.plan.pipeline
        if name in plan.summaries:
            summary = plan.summaries[name]
            clock = Clock(cut.clock(self.plan, summary), parse_duration(plan.final_after))
            generation = cut.commit.generation_of(name)
            return fold_view(connection, self.layout, summary, cut.batch, clock, generation)
        if name in plan.references:
            return self._register_reference(connection, name, cut)
        view = plan.views[name]
        for other in view_inputs(plan, view):
            if not self.open(connection, other, cut):  # no entry yet: its columns are known
                empty = f"{other}__empty"
                connection.register(empty, self.shape(other, cut).empty_table())
                connection.execute(f'create or replace temp view "{other}" as from "{empty}"')
        connection.execute(f'create or replace temp view "{name}" as {view.sql}')
        return True

    def _register_entries(
        self, connection: Connection, table: Table, cut: ReadPoint, since: int
    ) -> bool:
        name, batches = f"{table.name}__register", (since, cut.batch)
        folder = self.layout.table(cut.register(table.name))
        if not register_table(connection, name, folder, batches):
            return False
        connection.execute(
            f'create or replace temp view "{table.name}" as select * exclude ({", ".join(UNREAD)}) '
            f"from ({standing(name, batches[1], 'kept')}) where _batch >= {batches[0]}"
        )
        return True

    def _register_reference(self, connection: Connection, name: str, cut: ReadPoint) -> bool:
        """A reference in the version that the batch saw; before the first one, the newest."""
        stored = f"{name}__versions"
        if not register_table(connection, stored, self.layout.reference(name)):
            return False
        version = cut.commit.references.get(name)
        chosen = version or f'(select max(_batch) from "{stored}")'
        connection.execute(
            f'create or replace temp view "{name}" as select * exclude (_batch) from "{stored}" '
            f"where _batch = {chosen}"
        )
        return True

    def _check_table(self, table: str) -> None:
        if table not in self.plan.pipeline.tables:
            hint = did_you_mean(table, self.plan.pipeline.tables)
            raise QuestionError(f"table '{table}' not found; only tables have verdicts.{hint}")


@contextmanager
def told(name: str) -> Iterator[None]:
    """A view's own sums may need more digits than there are; its SQL is the user's."""
    try:
        yield
    except (OutOfRange, ConversionFailed) as error:
        raise QuestionError(
            f"'{name}' cannot be computed: {error}. A number is too large for a type in its SQL. "
            "Cast it to a wider decimal before you add or multiply."
        ) from None


def standing(register: str, batch: int | None, verdict: str) -> str:
    """The rows of a verdict that have not been taken back by a later batch, as SQL.

    Valid in DuckDB and in Spark. A register that ends there needs no batch.
    """
    gone_by = f" and gone._batch <= {batch}" if batch is not None else ""
    stood_by = f" and stood._batch <= {batch}" if batch is not None else ""
    gone = (
        f"select 1 from {register} gone where gone._sign < 0 and gone._verdict = '{verdict}' "
        "and gone._position = stood._position and gone._row = stood._row "
        f"and gone._batch > stood._batch{gone_by}"
    )
    return (
        f"select * from {register} stood where stood._verdict = '{verdict}' and stood._sign > 0"
        f"{stood_by} and not exists ({gone})"
    )
