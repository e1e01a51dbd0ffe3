"""Books whose numbers reach and pass every limit: each reader against Python's own integers.

The books are real, but for Spark: shares are posted, staged, decided and published as a flow does.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tapeline import Changes, Files, Memory, Pipeline, SinkContext, Stream
from tapeline.books import Books, Layout
from tapeline.books.audit.journals import check_journal
from tapeline.books.audit.scan import AuditScan
from tapeline.books.commit import Commit, Counts
from tapeline.books.commits import read_commits
from tapeline.books.extract import extract, extract_changes, extract_shape
from tapeline.books.fold import write_balances
from tapeline.books.meanings import Code
from tapeline.books.revisions import changes, why
from tapeline.books.schemas import JOURNAL, LINKS, REGISTER, with_columns
from tapeline.books.sql import ask_sql
from tapeline.books.sql_dialects import DuckDBSnapshot
from tapeline.books.table_id import TableId
from tapeline.books.views import views_of
from tapeline.deliver import Outbox
from tapeline.deliver.position_file import PositionFile
from tapeline.flow.commit import added
from tapeline.flow.ledger import Ledger, LedgerPlace
from tapeline.operate.doctor.tables import numbers
from tapeline.plan import resolve
from tapeline.serve.requests import ReadRequest, ask
from tapeline.settings import Settings
from tapeline.show import as_csv, as_json, as_table, plain
from tapeline.store.duckdb import connect
from tapeline.terminal import Terminal
from tests.support.large_numbers import KINDS, limit_of, links_of, near_limits, post, value_of

START = datetime(2026, 11, 13, tzinfo=UTC)
Share = tuple[str, int, int]  # key, sign, units of the last digit


def declared() -> Pipeline:
    found = Pipeline("large")
    found.source("raw", Files("landing/", schema="k string, m bigint"))

    @found.table
    def rows(raw: Stream) -> Any:
        return raw

    @found.summary(key="k")
    def totals(rows: Stream) -> Any:
        return rows

    @found.sink(Memory())
    def sent(totals: Changes) -> Any:
        return totals

    return found


@dataclass
class Ledgered:
    """Books of one summary, written batch by batch; what it holds in Python's integers."""

    home: Path
    kind: pa.DataType
    balances: dict[str, int] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    batches: int = 0

    def __post_init__(self) -> None:
        columns = pa.schema([("k", pa.string()), ("m", self.kind)])
        self.pool = ThreadPoolExecutor(2)
        self.ledger = Ledger(
            LedgerPlace(self.home, "large"),
            {
                TableId.journal("totals"): with_columns(columns, JOURNAL),
                TableId.links("totals"): with_columns(columns, LINKS),
                TableId.register("rows"): with_columns(columns, REGISTER),
            },
            Code({}),
            self.pool,
            START,
        )
        self.books = Books(resolve(declared()), self.home)
        self.layout = Layout(self.home)
        self.summary = self.books.plan.pipeline.summaries["totals"]

    def feed(self, shares: list[Share]) -> None:
        self.batches += 1
        entries, measures = post(self.kind, shares, self.batches)
        links = links_of(self.kind, shares, self.batches)
        staged = [
            self.ledger.stage(TableId.journal("totals"), entries, self.batches),
            self.ledger.stage(TableId.links("totals"), links, self.batches),
        ]
        count = sum(sign for _, sign, _ in shares)
        before = self.ledger.commits.last.commit if self.ledger.commits.last else Commit()
        counts = {
            "totals": Counts(
                rows=entries.num_rows, entries=count, counted=count, left_out=0, measures=measures
            )
        }
        commit = Commit(files=staged, tables=counts, totals=added(before.totals, counts))
        now = START + timedelta(hours=self.batches)
        decision = self.ledger.decide(commit, now)
        self.ledger.finish(decision)
        self.ledger.publish(decision, now)
        for key, sign, units in shares:
            self.balances[key] = self.balances.get(key, 0) + sign * units
            self.entries[key] = self.entries.get(key, 0) + sign

    @property
    def expected(self) -> dict[str, Any]:
        """What a reader must see: a balance exists while entries stand behind it."""
        known = sorted(key for key, entries in self.entries.items() if entries > 0)
        return {key: value_of(self.balances[key], self.kind) for key in known}

    @property
    def outgrown(self) -> set[str]:
        below = -limit_of(self.kind) - pa.types.is_integer(self.kind)
        return {
            key for key in self.expected if not below <= self.balances[key] <= limit_of(self.kind)
        }


@contextmanager
def new_books(kind: pa.DataType) -> Iterator[Ledgered]:
    with tempfile.TemporaryDirectory() as folder:
        books = Ledgered(Path(folder), kind)
        try:
            yield books
        finally:
            books.pool.shutdown()


@st.composite
def histories(draw: st.DrawFn) -> tuple[pa.DataType, list[list[Share]]]:
    kind = draw(st.sampled_from(KINDS))
    standing: list[Share] = []
    batches: list[list[Share]] = []
    for size in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        batch: list[Share] = []
        for _ in range(size):
            if standing and draw(st.integers(0, 3)) == 0:  # a record is taken back, as it was
                key, _, units = standing.pop(draw(st.integers(0, len(standing) - 1)))
                batch.append((key, -1, units))
            else:
                batch.append((draw(st.sampled_from("ab")), 1, draw(near_limits(kind))))
                standing.append(batch[-1])
        batches.append(batch)
    return kind, batches


unhurried = settings(
    deadline=None,
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],  # to shrink books takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)


def money(value: Any) -> Any:
    """A number as JSON holds it, back as a number."""
    return Decimal(value) if isinstance(value, str) else value


@unhurried
@given(histories(), st.booleans())
def test_every_reader_shows_every_digit(
    history: tuple[pa.DataType, list[list[Share]]], cached: bool
) -> None:
    kind, batches = history
    with new_books(kind) as large:
        for number, shares in enumerate(batches, 1):
            large.feed(shares)
            if cached and number == 1:
                write_balances(large.layout, large.summary, number)
        read = large.books.read("totals")
        assert dict(zip(*(read[c].to_pylist() for c in "km"), strict=True)) == large.expected
        written = {row["k"]: money(row["m"]) for row in json.loads(as_json(read))}
        assert written == large.expected
        check_words(large, read)
        check_commits(large, batches)
        answered = ask(large.books, ReadRequest("totals")).rows.to_pylist()
        assert {row["k"]: row["m"] for row in answered} == large.expected
        assert not any(name.startswith("_exact") for row in answered for name in row)
        check_sql(large)
        check_history(large)
        check_sink(large, batches)
        check_extract(large)
        check_audit(large)
        found = list(numbers(large.books))
        assert len(found) == bool(large.outgrown)
        assert all(one.state == "warning" and one.remedy for one in found)


def check_words(large: Ledgered, read: pa.Table) -> None:
    """CSV, and a table of the terminal, have every digit."""
    cells = {row["k"]: row["m"] for row in csv.DictReader(io.StringIO(as_csv(read)))}
    assert {key: Decimal(cell) for key, cell in cells.items()} == large.expected
    assert not any("E" in cell for cell in cells.values())
    shown = io.StringIO()
    Terminal(file=shown, width=300).print(as_table(read))
    lines = [line.replace(",", "").split("│")[1:3] for line in shown.getvalue().splitlines()]
    found = {cells[0].strip(): Decimal(cells[1].strip()) for cells in lines if len(cells) == 2}
    assert found == large.expected


def check_commits(large: Ledgered, batches: list[list[Share]]) -> None:
    """Every batch says its own total, and that of all batches so far, which status shows."""
    commits, units = commits_of(large), 0
    for number, shares in enumerate(batches, 1):
        own = sum(sign * one for _, sign, one in shares)
        units += own
        for counts, expected in ((commits[number].tables, own), (commits[number].totals, units)):
            said = (counts["totals"].measures or {})["m"]
            assert Decimal(said) == value_of(expected, large.kind)
            assert "E" not in said
    status = {name: one.as_dict() for name, one in large.books.cut().commit.totals.items()}
    assert Decimal(plain(status)["totals"]["measures"]["m"]) == value_of(units, large.kind)


def check_sql(large: Ledgered) -> None:
    """In SQL a number that outgrew its type is NULL, with its flag; the others are exact."""
    rows = ask_sql(large.books, "select * from totals order by k").rows.to_pylist()
    views = connect()
    for statement in views_of(large.books, DuckDBSnapshot(large.books.cut())):
        if statement.name in ("_published", "totals"):
            views.execute(statement.sql.replace("replace view", "replace temp view"))
    found = views.execute("select k, m, _overflow from totals order by k").fetchall()
    assert found == [(row["k"], row["m"], row["_overflow"]) for row in rows]
    assert {k for k, _, overflow in found if overflow} == large.outgrown
    for key, number, overflow in found:
        assert number == (None if overflow else large.expected[key])


def check_history(large: Ledgered) -> None:
    for key in large.balances:
        revisions = why(large.books, "totals", [key])
        assert revisions[-1].value["m"] == value_of(large.balances[key], large.kind)
        json.dumps(plain([one.facts() for one in revisions]))
    moved = {row["key"]["k"]: row["new"]["m"] for row in changes(large.books, START)}
    assert moved == {
        key: value_of(units, large.kind) for key, units in large.balances.items() if units
    }


def check_sink(large: Ledgered, batches: list[list[Share]]) -> None:
    """The last thing sent of a key is what it is; Parquet, JSON and CSV hold it."""
    outbox = Outbox(large.books.plan, large.layout, large.books.plan.pipeline.sinks["sent"])
    last = {row["k"]: row["_new"] for row in outbox.all_rows(large.batches)}
    known = {key: number["m"] for key, number in last.items() if number is not None}
    assert known == large.expected
    place, outgoing = outbox.after(0, large.batches, 1_000)
    assert place.batch == large.batches
    for form in ("parquet", "json", "csv"):
        folder = large.home / "sent" / form
        destination = Files(str(folder), format=form).destination()
        noted = PositionFile(folder / "place")
        destination.open(SinkContext("large", "sent", Settings(), noted, lambda place: None))
        destination.send(outgoing)
    for path in sorted((large.home / "sent").glob("*/*-*")):
        batch = int(path.stem.split("-")[1])
        sent = next(one.rows for one in outgoing if one.position.batch == batch)
        assert measures_in(path) == [row["_new"] and row["_new"]["m"] for row in sent]


def check_extract(large: Ledgered) -> None:
    """What Spark is given: null with its flag where a number outgrew its type, exact elsewhere."""
    cut = large.books.cut()
    found = extract(large.books, "totals", cut)
    assert found.schema == extract_shape(large.books, "totals", cut)
    seen = {key: None if key in large.outgrown else v for key, v in large.expected.items()}
    assert {row["k"]: row["m"] for row in found.to_pylist()} == seen
    assert {row["k"] for row in found.to_pylist() if row["_overflow"]} == large.outgrown
    changed = extract_changes(large.books, "totals", 1, large.batches)
    assert changed.schema == extract_shape(large.books, "totals", cut, changes=True)
    last = {row["k"]: row["_new"] for row in changed.to_pylist()}
    assert {key: number["m"] for key, number in last.items() if number is not None} == seen


def measures_in(path: Path) -> list[Any]:
    """The number that each row of a sink's file says, exactly."""
    if path.suffix == ".parquet":
        return [row["_new"] and row["_new"]["m"] for row in pq.read_table(path).to_pylist()]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        rows = [json.loads(line, parse_float=pytest.fail)["_new"] for line in text.splitlines()]
    else:
        cells = [row["_new"] for row in csv.DictReader(io.StringIO(text))]
        rows = [json.loads(cell, parse_float=pytest.fail) if cell else None for cell in cells]
    return [row and money(row["m"]) for row in rows]


def check_audit(large: Ledgered) -> None:
    with connect() as connection:
        scan = AuditScan(connection, large.books, commits_of(large), 0, large.books.cut())
        checks = list(check_journal(scan, large.summary))
    wrong = [c for c in checks if not c.balances and "left out" not in c.what]
    assert wrong == []


def commits_of(large: Ledgered) -> dict[int, Commit]:
    rows = read_commits(large.layout.commits)
    return {row.batch: row.commit for row in rows if row.decides}


@unhurried
@given(histories(), st.sampled_from(["=", ">", "<", ">=", "<="]), st.integers(-5, 5))
def test_the_api_groups_and_compares_exactly(
    history: tuple[pa.DataType, list[list[Share]]], comparison: str, bound: int
) -> None:
    kind, batches = history
    holds = {
        "=": lambda a: a == bound, ">": lambda a: a > bound, "<": lambda a: a < bound,
        ">=": lambda a: a >= bound, "<=": lambda a: a <= bound,
    }[comparison]  # fmt: skip
    with new_books(kind) as large:
        for shares in batches:
            large.feed(shares)
        asked = ask(large.books, ReadRequest("totals", where=[f"m{comparison}{bound}"])).rows
        fits = pa.types.is_integer(kind) or abs(bound) < 10 ** (kind.precision - kind.scale)
        expected = {k: v for k, v in large.expected.items() if fits and holds(v)}
        assert {row["k"]: row["m"] for row in asked.to_pylist()} == expected
        every = ReadRequest("totals", group=["k"], add_up=["m"], highest=["_entries"])
        grouped = ask(large.books, every).rows.to_pylist()
        assert {row["k"]: row["m"] for row in grouped} == large.expected
        highest = ReadRequest("totals", group=["k"], highest=["m"])
        found = ask(large.books, highest).rows.to_pylist()
        assert {row["k"]: row["m"] for row in found} == large.expected


def test_totals_that_older_versions_let_wrap_around_are_no_alarm() -> None:
    """The journal is right; the commits row of such a batch says a number of its own."""
    with new_books(pa.int64()) as large:
        large.feed([("a", 1, 6 * 10**18), ("b", 1, 6 * 10**18)])
        commits = commits_of(large)
        said = commits[1].tables["totals"].measures
        assert said == {"m": "12000000000000000000"}

        def alarms() -> list[str]:
            with connect() as connection:
                look = AuditScan(connection, large.books, commits, 0, large.books.cut())
                checks = list(check_journal(look, large.summary))
            return [c.what for c in checks if not c.balances and "left out" not in c.what]

        said["m"] = "-6446744073709551616"
        assert alarms() == []
        said["m"] = "-6446744073709551615"
        assert alarms() == ["totals: m = its commits rows"]
