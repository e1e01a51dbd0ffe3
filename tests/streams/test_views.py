"""Views for other tools: DuckDB and Spark alone give the rows of our reports, and the oracle's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tapeline.books.sql_dialects import DuckDBSnapshot, SparkLive
from tapeline.books.views import as_text, views_of
from tapeline.java import compared_jars, listed_jars
from tapeline.plan import load_pipeline
from tapeline.settings import Settings
from tapeline.spark.view_check import refused_by_spark
from tapeline.testing import Books, Crash, Trial, crash_at, plan_of
from tapeline.trades import oracle
from tests.support.brokerage import HOSTILE, Brokerage, trade
from tests.support.command_line import tapeline

REPOSITORY = Path(__file__).parents[2]
Rows = list[dict[str, Any]]
Read = Callable[[str], Rows]
BATCHES: list[list[dict[str, Any]]] = [
    [
        trade("a1", "12 14:35", price="30"),
        trade("a2", "12 14:50", "SELL", price="20", terminal="DESKTOP"),
        trade("a3", "12 15:05", price="7.25", terminal="MOBILE"),
        trade("a5", "12 15:20", price="9", terminal="MOBILE"),
    ],
    [
        trade("b1", "13 14:35", price="30"),
        trade("b2", "13 14:40", "SELL", price="12", terminal="DESKTOP", currency="JPY"),
        trade("b3", "13 14:52", "SELL", price="4", terminal="MOBILE", client="C000002"),
        trade("b3", "13 14:52", "SELL", price="4", terminal="MOBILE", client="C000002"),
        trade(HOSTILE, "13 14:53", price="5"),
    ],
    [trade("b1", "13 14:35", "SELL", price="31", version=2, event="CORRECT")],  # to the other side
    [trade("a5", "12 15:20", price="9", version=2, event="CANCEL")],  # the only one of its window
    [trade("a4", "12 14:40", price="11")],  # more than a day late: it restates
]
UNPUBLISHED = [
    trade("c1", "13 15:40", price="50"),
    trade("a4", "12 14:40", price="12", version=2, event="CORRECT"),
]


def delta_jars() -> list[str]:
    names = [name for name in listed_jars() if name.startswith("delta-")]
    return [str(jar) for jar in compared_jars(names)]


class Shell:
    """A Spark in a process of its own, which knows nothing of Tapeline."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.foreign_spark", *delta_jars()],
            cwd=REPOSITORY,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, **request: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        assert said == "ok", said

    def run(self, text: str) -> None:
        (self._folder / "views.sql").write_text(text, encoding="utf-8")
        self.ask(run=str(self._folder / "views.sql"))

    def read(self, name: str) -> Rows:
        file = self._folder / "rows.parquet"
        self.ask(read=name, to=str(file))
        rows: Rows = pq.read_table(file).to_pylist()
        return rows

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def brokerage(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Brokerage:
    """Books in a folder whose name wants quoting, with what makes books hard to read."""
    made = Brokerage(tmp_path_factory.mktemp("books") / 'it\'s `ours`; -- "x"')
    for batch in BATCHES:
        made.feed(*batch, "this is not JSON")
    return made


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("shell"))
    yield made
    made.close()


def in_duckdb(books: Books, folder: Path) -> Read:
    """A DuckDB database with the views in it, opened again as a tool would."""
    dialect = DuckDBSnapshot(books.cut())
    file = str(folder / f"batch-{books.cut().batch}.duckdb")
    with duckdb.connect(file) as connection:
        connection.execute(as_text(books, dialect, views_of(books, dialect)))

    def read(name: str) -> Rows:
        with duckdb.connect(file, read_only=True) as connection:
            connection.execute("set TimeZone = 'Asia/Tokyo'")
            rows: Rows = connection.sql(f'select * from "{name}"').to_arrow_table().to_pylist()
        return rows

    return read


def in_spark(books: Books, shell: Shell) -> Read:
    dialect = SparkLive(books.layout)
    shell.run(as_text(books, dialect, views_of(books, dialect)))
    return shell.read


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
def read(request: Any, brokerage: Brokerage, tmp_path: Path) -> Read:
    if request.param == "duckdb":
        return in_duckdb(brokerage.trial.books, tmp_path)
    return in_spark(brokerage.trial.books, request.getfixturevalue("shell"))


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Decimal | int):
        return f"{Decimal(value).normalize():f}"
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def same(rows: Rows) -> list[str]:
    """Rows to compare: exact values and the order of columns, whatever the order of rows."""
    shown = [{n: v for n, v in row.items() if n != "_overflow"} for row in rows]
    assert not any(row.get("_overflow") for row in rows)
    return sorted(repr([(name, plain(value)) for name, value in row.items()]) for row in shown)


def expected(sent: list[dict[str, Any]], brokerage: Brokerage) -> oracle.Expected:
    truth = [{"fate": "kept", "trade_date": None, **record} for record in sent]
    return oracle.expect(truth, oracle.Reference.read(brokerage.folder / "reference"))


MEASURES = ("total_buy", "total_sell", "fees", "trades")


def windows(rows: Rows) -> dict[Any, Any]:
    return {
        (row["window_start"], row["terminal"], row["currency"]): tuple(row[m] for m in MEASURES)
        for row in rows
    }


def as_the_oracle(known: oracle.Expected) -> dict[Any, Any]:
    return {key: tuple(getattr(w, m) for m in MEASURES) for key, w in known.windows.items()}


def test_every_view_gives_the_rows_of_its_report(brokerage: Brokerage, read: Read) -> None:
    books = brokerage.trial.books
    names = set(books.plan.pipeline.declared) - set(books.plan.pipeline.sources)
    assert len(names) == 11
    for name in sorted(names):
        rows = books.read(name).to_pylist()
        assert rows
        assert same(read(name)) == same(rows), name


def test_the_folded_tables_are_the_oracles(brokerage: Brokerage, read: Read) -> None:
    known = expected([record for batch in BATCHES for record in batch], brokerage)
    assert known.trades == {"kept": 8, "duplicate": 1, "superseded": 2, "applied": 1}
    assert windows(read("trade_summary")) == as_the_oracle(known)
    due = {(row["settlement_id"], row["currency"]): row["due"] for row in read("due")}
    assert due == dict(known.due)
    assert len(read("trades")) == known.trades["kept"]
    late = {row["window_start"] for row in read("trade_summary") if row["_status"] == "restated"}
    assert late == {datetime(2026, 11, 12, 14, 30, tzinfo=UTC)}


def test_running_totals_add_up_over_time_apart_by_the_other_keys(
    brokerage: Brokerage, read: Read
) -> None:
    known = expected([record for batch in BATCHES for record in batch], brokerage)
    running: dict[Any, Any] = {}
    for (start, *apart), window in sorted(known.windows.items()):
        before = [v for (s, *a), v in running.items() if a == apart and s < start]
        sums = [max((v[m] for v in before), default=0) for m in range(len(MEASURES))]
        running[start, *apart] = [
            sums[m] + getattr(window, name) for m, name in enumerate(MEASURES)
        ]
    found = {
        (row["window_start"], row["terminal"], row["currency"]): [
            row[f"running_{name}"] for name in MEASURES
        ]
        for row in read("trade_summary_running")
    }
    assert found == running
    assert any(sums[3] > 1 for sums in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("point", ["staged", "finished"])
def test_a_batch_shows_when_it_is_published_and_never_before(
    brokerage: Brokerage, tmp_path: Path, shell: Shell, point: str
) -> None:
    made = Brokerage.__new__(Brokerage)
    made.folder = brokerage.folder
    made.trial = Trial(
        brokerage.trial.plan.pipeline, tmp_path, brokerage.folder, like=brokerage.trial
    )
    sent = BATCHES[0] + BATCHES[4]
    made.feed(*sent)
    with crash_at(point), pytest.raises(Crash):
        made.feed(*UNPUBLISHED)
    before = expected(sent, made)
    books = made.trial.books
    in_files, live = in_duckdb(books, tmp_path), in_spark(books, shell)
    for read in (in_files, live):
        assert windows(read("trade_summary")) == as_the_oracle(before)
        assert len(read("trades")) == before.trades["kept"]
    finished = Trial(brokerage.trial.plan.pipeline, tmp_path, brokerage.folder, like=made.trial)
    finished.advance()
    after = as_the_oracle(expected(sent + UNPUBLISHED, made))
    assert windows(live("trade_summary")) == after != as_the_oracle(before)
    assert windows(in_files("trade_summary")) == as_the_oracle(before)  # a snapshot stays one
    again = in_duckdb(finished.books, tmp_path)
    assert windows(again("trade_summary")) == after


@pytest.mark.slow
def test_books_without_entries_are_views_without_rows(
    brokerage: Brokerage, tmp_path: Path, shell: Shell
) -> None:
    pipeline = brokerage.trial.plan.pipeline
    empty = Trial(pipeline, tmp_path, brokerage.folder, like=brokerage.trial).books
    for read in (in_duckdb(empty, tmp_path), in_spark(empty, shell)):
        for name in (*pipeline.tables, *pipeline.summaries, *pipeline.views):
            assert read(name) == []
        assert len(read("instruments")) == len(brokerage.trial.read("instruments"))
        assert [row["batch"] for row in read("_published")] == [0]


@pytest.mark.slow
def test_a_view_that_spark_refuses_is_left_out_with_its_reason(
    brokerage: Brokerage, shell: Shell, spark: Any
) -> None:
    settings = Settings(project=brokerage.folder, root=brokerage.folder / "books")
    pipeline = load_pipeline("tapeline.trades", settings)
    pipeline.views = dict(pipeline.views)
    pipeline.view("narrow", "select * exclude (fees) from trade_summary")
    pipeline.view("narrower", "select window_start from narrow")
    pipeline.view("named", 'select "window_start" as "from" from trade_summary')
    books = Books(plan_of(pipeline), brokerage.trial.books.layout.home)
    refused = refused_by_spark(spark, books)
    assert refused.keys() == {"narrow", "narrower"}
    dialect = SparkLive(books.layout)
    text = as_text(books, dialect, views_of(books, dialect, refused))
    assert "-- create or replace view `narrow` as" in text
    shell.run(text)
    assert {row["from"] for row in shell.read("named")} == {
        row["window_start"] for row in shell.read("trade_summary")
    }


def test_the_command_writes_a_file_that_duckdb_runs(brokerage: Brokerage, tmp_path: Path) -> None:
    words = ["views", "tapeline.trades", "--root", "books", "--for", "duckdb"]
    shown = tapeline(brokerage.folder, *words)
    assert shown.returncode == 0, shown.stderr
    done = tapeline(brokerage.folder, *words, "--write", str(tmp_path / "v.sql"), "--json")
    assert (tmp_path / "v.sql").read_text() == shown.stdout
    listed = [one["name"] for one in json.loads(done.stdout)["views"]]
    with duckdb.connect() as connection:
        connection.execute(shown.stdout)
        made = connection.execute("select view_name from duckdb_views() where not internal")
        assert sorted(name for (name,) in made.fetchall()) == sorted(listed)
    assert tapeline(brokerage.folder, *words[:-1], "oracle").returncode == 2
    nothing = tapeline(tmp_path, "views", "tapeline.trades", "--for", "spark")
    assert (nothing.returncode, "Run the pipeline once" in nothing.stderr) == (3, True)
