"""The trial balance: proof, from the tables alone, that nothing is lost and nothing doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import duckdb

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.books.fold import measures_of
from tapeline.books.query import connect, register_table
from tapeline.declare import Summary, Table


@dataclass(frozen=True)
class Check:
    """One equation of the trial balance."""

    what: str
    expected: str
    found: str
    batch: int | None = None  # the first batch where it does not hold

    @property
    def balances(self) -> bool:
        return self.expected == self.found

    def facts(self) -> dict[str, Any]:
        return {**asdict(self), "balances": self.balances}


def audit(books: Books) -> list[Check]:
    """Every equation, as the tables stand up to the last published batch."""
    cut = books.cut()
    bodies = {
        row["batch"]: json.loads(row["body"])
        for row in read_commits(books.layout.commits)
        if row["event"] == "decided" and row["batch"] <= cut.batch
    }
    checks: list[Check] = []
    with connect() as connection:
        for source in books.plan.pipeline.sources:
            checks += _tape(connection, books, source, bodies)
        for table in books.plan.tables:
            checks += _register(connection, books, table, bodies)
        for summary in books.plan.summaries:
            checks += _journal(connection, books, summary, bodies)
    return checks


def _tape(
    connection: duckdb.DuckDBPyConnection, books: Books, source: str, bodies: dict[int, Any]
) -> Iterator[Check]:
    """The tape holds what its batches list, and the flow has taken what it says."""
    listed = books.layout.tape_batches(source)
    if not register_table(connection, "listed", listed):
        return
    register_table(connection, "tape", books.layout.tape(source))
    last = max(
        (b["tapes"][source]["last"] for b in bodies.values() if source in b["tapes"]), default=0
    )
    rows = connection.execute(
        f"select batch, records from listed where batch <= {last} order by batch"
    ).fetchall()
    counts = dict(rows)
    taken_rows = f"tape where part in (select unnest(pieces) from listed where batch <= {last})"
    on_tape = _one(connection, f"select count(*) from {taken_rows}")
    distinct = _one(
        connection, f'select count(*) from (select distinct part, "at" from {taken_rows})'
    )
    yield Check(
        f"{source}: records on the tape = records listed", str(sum(counts.values())), str(on_tape)
    )
    yield Check(f"{source}: every position once", str(on_tape), str(distinct))
    gapless = list(counts) == list(range(1, len(counts) + 1))
    yield Check(f"{source}: batches are numbered without a gap", "True", str(gapless))
    taken: dict[int, int] = {}
    for batch, body in bodies.items():
        part = body["tapes"].get(source)
        if part:
            expected = sum(counts.get(n, 0) for n in range(part["first"], part["last"] + 1))
            taken[batch] = expected - part["records"]
    wrong = next((batch for batch, difference in taken.items() if difference), None)
    yield Check(f"{source}: what each batch took = what the tape lists", "0",
                str(sum(abs(v) for v in taken.values())), wrong)  # fmt: skip


def _register(
    connection: duckdb.DuckDBPyConnection, books: Books, table: Table, bodies: dict[int, Any]
) -> Iterator[Check]:
    """The verdicts add up to the input's records, batch by batch, as the commits rows say."""
    last = max(bodies, default=0)
    name = f"register_{table.name}"
    if not register_table(connection, name, books.layout.register(table.name), (0, last)):
        return
    rows = connection.execute(
        f"select _batch, _verdict, sum(_sign) filter (_row = 0)::bigint from {name} "
        f"where _batch <= {last} group by all"
    ).fetchall()
    found: dict[int, dict[str, int]] = {}
    for batch, verdict, count in rows:
        if count:
            found.setdefault(batch, {})[verdict] = count
    said = {
        batch: {k: v for k, v in body["tables"][table.name]["verdicts"].items() if v}
        for batch, body in bodies.items()
        if table.name in body["tables"]
    }
    total = sum(sum(v.values()) for v in found.values())
    source = books.plan.pipeline.sources.get(table.stream)
    given = {
        batch: (body["tapes"].get(table.stream, {}).get("records", 0) if source
                else body["tables"].get(table.stream, {}).get("verdicts", {}).get("kept", 0))
        for batch, body in bodies.items()
    }  # fmt: skip
    wrong = next((b for b in bodies if sum(found.get(b, {}).values()) != given[b]), None)
    yield Check(
        f"{table.name}: verdicts = records of {table.stream}",
        str(sum(given.values())),
        str(total),
        wrong,
    )
    differs = next((b for b in said if said[b] != found.get(b, {})), None)
    yield Check(f"{table.name}: the register = its commits rows", "equal",
                "equal" if differs is None else "different", differs)  # fmt: skip


def _journal(
    connection: duckdb.DuckDBPyConnection, books: Books, summary: Summary, bodies: dict[int, Any]
) -> Iterator[Check]:
    """Entries, links and balances tell the same story, in records and in money."""
    last = max(bodies, default=0)
    journal, links = f"journal_{summary.name}", f"links_{summary.name}"
    if not register_table(connection, journal, books.layout.journal(summary.name), (0, last)):
        return
    register_table(connection, links, books.layout.links(summary.name), (0, last))
    register = f"register_{summary.stream}"
    entries = _one(connection, f"select sum(_entries) from {journal} where _batch <= {last}")
    kept = _one(
        connection, f"select sum(_sign) from {register} where _verdict='kept' and _batch <= {last}"
    )
    facts = [body["tables"].get(summary.name, {}) for body in bodies.values()]
    counted = sum(one.get("counted", 0) + one.get("left_out", 0) for one in facts)
    shares = _one(connection, f"select sum(_sign) from {links} where _batch <= {last}")
    yield Check(f"{summary.name}: entries = links", str(shares), str(entries))
    yield Check(
        f"{summary.name}: counted + left out = entries of {summary.stream}", str(kept), str(counted)
    )
    for measure in measures_of(connection, journal, summary):
        column = '"' + measure + '"'
        query = (
            f"select j._batch, j.total, l.total from (select _batch, sum({column}) as total from "
            f"{journal} group by _batch) j full join (select _batch, sum(case when _sign > 0 then "
            f"{column} else -{column} end) as total from {links} group by _batch) l "
            f"using (_batch) where coalesce(j._batch, l._batch) <= {last} order by 1"
        )
        rows = connection.execute(query).fetchall()
        wrong = next((batch for batch, ours, theirs in rows if ours != theirs), None)
        ours, theirs = (sum(row[i] or 0 for row in rows) for i in (1, 2))
        yield Check(
            f"{summary.name}: {measure} in the journal = in the links",
            str(theirs),
            str(ours),
            wrong,
        )
        said = {
            batch: body["tables"][summary.name]["measures"][measure]
            for batch, body in bodies.items()
            if summary.name in body["tables"]
        }
        found = {batch: str(total or 0) for batch, total, _ in rows}
        differs = next((b for b, v in said.items() if not _same(v, found.get(b, "0"))), None)
        yield Check(f"{summary.name}: {measure} = its commits rows", "equal",
                    "equal" if differs is None else "different", differs)  # fmt: skip


def _same(one: str, other: str) -> bool:
    return Decimal(one) == Decimal(other)


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    (row,) = connection.execute(query).fetchall()
    return int(row[0]) if row[0] is not None else 0
