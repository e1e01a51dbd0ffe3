"""Reading the books of a pipeline, without Spark: one consistent cut over all tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.commits import read_tail
from tapeline.books.fold import fold_view
from tapeline.books.layout import Layout
from tapeline.books.query import connect, register_table
from tapeline.books.schemas import VERDICTS
from tapeline.declare import Table
from tapeline.errors import OperationError, did_you_mean
from tapeline.plan import Plan
from tapeline.plan.graph import view_inputs


@dataclass(frozen=True)
class Cut:
    """The last published batch at some moment, and what its row said."""

    batch: int
    at: datetime | None
    body: dict[str, Any]


class Books:
    """The books as they were last published; each call reads what is there now."""

    def __init__(self, plan: Plan, home: Path) -> None:
        self.plan = plan
        self.layout = Layout(home)

    def cut(self) -> Cut:
        """The last published batch."""
        rows = read_tail(self.layout.commits)
        published = [row for row in rows if row["event"] == "published"]
        if not published:
            return Cut(0, None, {})
        batch = published[-1]["batch"]
        bodies = [r["body"] for r in rows if r["batch"] == batch and r["event"] == "decided"]
        return Cut(batch, published[-1]["at"], json.loads(bodies[0]))

    def read(self, name: str) -> pa.Table:
        """A summary, view, table or reference as it stands."""
        plan = self.plan.pipeline
        with connect() as connection:
            batch = self.cut().batch
            if name in plan.summaries or name in plan.views:
                if not self._register(connection, name, batch):
                    return pa.table({})
            elif name in plan.tables:
                if not self._register_entries(connection, plan.tables[name], batch):
                    return pa.table({})
            elif name in plan.references:
                if not self._register_reference(connection, name):
                    return pa.table({})
            else:
                hint = did_you_mean(name, set(plan.declared) - set(plan.sources))
                raise OperationError(f"'{name}' is no table, summary or view.{hint}")
            return connection.sql(f'select * from "{name}"').to_arrow_table()

    def register(self, table: str) -> pa.Table:
        """A table's register as it stands: every verdict."""
        with connect() as connection:
            batch = self.cut().batch
            if not register_table(connection, "r", self.layout.register(table), (0, batch)):
                return pa.table({})
            return connection.sql(f"select * from r where _batch <= {batch}").to_arrow_table()

    def with_verdict(self, table: str, verdict: str) -> pa.Table:
        """The records of a table that have a verdict: where they are, why, and their bytes."""
        if verdict not in VERDICTS:
            raise OperationError(f"'{verdict}' is no verdict.{did_you_mean(verdict, VERDICTS)}")
        if table not in self.plan.pipeline.tables:
            hint = did_you_mean(table, self.plan.pipeline.tables)
            raise OperationError(f"'{table}' is no table, and only tables have verdicts.{hint}")
        rows = self.register(table)
        if not rows.num_columns:
            return rows
        chosen = rows.filter(pc.equal(rows["_verdict"], verdict))
        return chosen.select(["_position", "_reasons", "_raw", "_batch"])

    def journal(self, summary: str) -> pa.Table:
        """A summary's journal as it stands, in the order it was written."""
        with connect() as connection:
            batch = self.cut().batch
            if not register_table(connection, "j", self.layout.journal(summary), (0, batch)):
                return pa.table({})
            query = f"select * from j where _batch <= {batch} order by _batch"
            return connection.sql(query).to_arrow_table()

    def totals(self) -> dict[str, dict[str, dict[str, int]]]:
        """Verdicts, causes, reasons and warnings of every table, added up over all batches."""
        totals: dict[str, dict[str, dict[str, int]]] = self.cut().body.get("totals", {})
        return totals

    def _register(self, connection: duckdb.DuckDBPyConnection, name: str, batch: int) -> bool:
        """Make a summary, reference or view readable by its name, and what it reads before it."""
        plan = self.plan.pipeline
        if name in plan.summaries:
            return fold_view(connection, self.layout, plan.summaries[name], batch)
        if name in plan.references:
            return self._register_reference(connection, name)
        view = plan.views[name]
        for other in view_inputs(plan, view):
            if not self._register(connection, other, batch):
                return False  # it reads a summary that has no entry yet
        connection.execute(f'create or replace temp view "{name}" as {view.sql}')
        return True

    def _register_entries(
        self, connection: duckdb.DuckDBPyConnection, table: Table, batch: int
    ) -> bool:
        name = f"{table.name}__register"
        if not register_table(connection, name, self.layout.register(table.name), (0, batch)):
            return False
        connection.execute(
            f'create or replace temp view "{table.name}" as select * exclude (_raw, _content_hash, '
            f"_key_hash) from \"{name}\" where _batch <= {batch} and _verdict = 'kept'"
        )
        return True

    def _register_reference(self, connection: duckdb.DuckDBPyConnection, name: str) -> bool:
        stored = f"{name}__versions"
        if not register_table(connection, stored, self.layout.reference(name)):
            return False
        connection.execute(
            f'create or replace temp view "{name}" as select * exclude (_batch) from "{stored}" '
            f'where _batch = (select max(_batch) from "{stored}")'
        )
        return True
