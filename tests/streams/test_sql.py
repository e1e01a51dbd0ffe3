"""SQL over the books: right answers by declared names, and nothing else within reach."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapeline import OperationError
from tapeline.books.sql import Limits, ask_sql, askable
from tapeline.store import duckdb
from tapeline.testing import Trial, commits_of
from tests.support.brokerage import HOSTILE, Brokerage, opening_day
from tests.support.command_line import tapeline


@pytest.fixture(scope="module")
def brokerage(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Brokerage:
    made = Brokerage(tmp_path_factory.mktemp("asked"))
    opening_day(made)
    return made


BOOKS = ("--pipeline", "tapeline.trades", "--root", "books")


def rows(brokerage: Brokerage, asked: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask_sql(brokerage.trial.books, asked, **more).rows.to_pylist()
    return found


def without_flag(row: dict[str, Any]) -> dict[str, Any]:
    """A row as reports show it: only SQL has to say that a number outgrew its type."""
    assert not row.get("_overflow")
    return {name: value for name, value in row.items() if name != "_overflow"}


def test_everything_declared_can_be_asked_for_by_its_name(brokerage: Brokerage) -> None:
    books = brokerage.trial.books
    pipeline = books.plan.pipeline
    known = {one["name"]: one for one in askable(books)}
    assert known.keys() == set(pipeline.declared) - set(pipeline.sources)
    assert known["trade_summary"]["columns"]["total_buy"].startswith("decimal")
    for name in known:
        asked = [without_flag(row) for row in rows(brokerage, f"from {name}")]
        assert asked == books.read(name).to_pylist()


def test_an_answer_is_exact(brokerage: Brokerage) -> None:
    # a1 and the late a4 bought at 30 and 11, the corrected b1 at 31, ten shares each
    (found,) = rows(
        brokerage,
        "select sum(total_buy) as bought, sum(trades) as n from trade_summary "
        "where terminal = 'WEB' and extract(hour from window_start) = 14",
    )
    assert found["bought"] == Decimal("770.0000")  # and 50 of the one with the hostile name
    assert found["n"] == 4
    assert isinstance(found["n"], int | Decimal)


def test_names_join_and_may_be_written_in_capitals(brokerage: Brokerage) -> None:
    (found,) = rows(
        brokerage,
        "with bought as (select * from TRADES where side = 'BUY') "
        "select count(*) as n from bought join instruments using (instrument)",
    )
    assert found == {"n": 6}


def test_an_answer_as_reported_folds_what_was_published_then(brokerage: Brokerage) -> None:
    query = "select cast(sum(trades) as bigint) as n from trade_summary"
    published = [row.at for row in commits_of(brokerage.trial.books) if row.publishes]
    counts = [rows(brokerage, query, as_reported=moment)[0]["n"] for moment in published]
    assert counts == [3, 8, 8, 9]  # the third batch corrects, the fourth is late


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('{file}')",
        "select * from read_text('{file}')",
        "select * from sniff_csv('{file}')",
        "select * from glob('{folder}/*')",
        "select * from read_parquet('{folder}/books/trades/gold/trade_summary/*.parquet')",
        "select * from query('from read_text(''{file}'')')",
        "select * from '{file}'",
        "select * from read_json('http://127.0.0.1:1/x')",
        "with x as (copy (select 1) to '{folder}/written.csv') select 1",
        "copy trades to '{folder}/written.csv'",
        "export database '{folder}/written'",
        "attach '{folder}/written.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "select 1; select 2",
        "create table x as select 1",
        "explain analyze copy (select 1) to '{folder}/written.csv'",
        "select * from enable_logging('QueryLog', storage := 'file', storage_path := '{folder}/w')",
        "call pragma_version()",
        "",
        "-- nothing",
    ],
)
def test_a_query_reaches_no_file_no_network_and_no_setting(
    brokerage: Brokerage, tmp_path: Path, query: str
) -> None:
    (tmp_path / "secret.csv").write_text("the secret\n1\n")
    said = query.format(file=tmp_path / "secret.csv", folder=tmp_path)
    with pytest.raises(OperationError) as refused:
        ask_sql(brokerage.trial.books, said)
    assert "the secret" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_pythons_variables_are_no_tables(brokerage: Brokerage) -> None:
    with pytest.raises(OperationError, match="'limits' not found"):
        ask_sql(brokerage.trial.books, "select * from limits")


@pytest.mark.parametrize(
    ("query", "nearest"),
    [
        ("select * from trade_sumary", "Did you mean 'trade_summary'?"),
        ("select totl_buy from trade_summary", "total_buy"),
        ("selct 1", "selct"),
    ],
)
def test_a_mistake_is_answered_with_what_is_nearest(
    brokerage: Brokerage, query: str, nearest: str
) -> None:
    with pytest.raises(OperationError) as refused:
        ask_sql(brokerage.trial.books, query)
    assert nearest in str(refused.value)


def test_a_query_ends_at_its_limits(brokerage: Brokerage, monkeypatch: pytest.MonkeyPatch) -> None:
    books = brokerage.trial.books
    some = ask_sql(books, "select * from trades order by traded_at", None, Limits(rows=3))
    assert (some.rows.num_rows, some.more) == (3, True)
    exactly = ask_sql(books, "select * from range(3)", None, Limits(rows=3))
    assert (exactly.rows.num_rows, exactly.more) == (3, False)
    endless = "select * from range(1000000000000)"
    assert ask_sql(books, endless, None, Limits(rows=5)).rows["range"].to_pylist() == [*range(5)]
    with pytest.raises(OperationError, match=r"longer than 0\.5 seconds"):
        ask_sql(books, f"select sum(range) from ({endless})", None, Limits(seconds=0.5))
    monkeypatch.setattr(duckdb, "MEMORY_LIMIT", "50MB")
    with pytest.raises(OperationError, match="of memory"):
        ask_sql(books, "select list(range) as x from range(100000000)")


def test_what_has_no_rows_yet_has_its_columns(brokerage: Brokerage, tmp_path: Path) -> None:
    pipeline = brokerage.trial.plan.pipeline
    empty = Trial(pipeline, tmp_path, brokerage.folder, like=brokerage.trial).books
    for one in askable(empty):
        known = {one["name"]: one["columns"] for one in askable(brokerage.trial.books)}
        assert one["columns"] == known[one["name"]]
    for name in ("trades", "trade_summary", "running_totals", "due"):
        counted = ask_sql(empty, f"select count(*) as n from {name}").rows.to_pylist()
        assert counted == [{"n": 0}]


def test_books_that_are_not_there_are_said_to_be(brokerage: Brokerage, tmp_path: Path) -> None:
    books = type(brokerage.trial.books)(brokerage.trial.plan, tmp_path)
    with pytest.raises(OperationError, match="Run the pipeline once"):
        ask_sql(books, "select * from trade_summary")


def test_the_command_answers_as_table_csv_and_json(brokerage: Brokerage) -> None:
    folder = brokerage.folder
    query = "select trade_id, price from trades order by trade_id"
    done = tapeline(folder, "sql", query, *BOOKS, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] == {"trade_id": HOSTILE, "price": "5.00000000"}
    done = tapeline(folder, "sql", query, *BOOKS, "--format", "csv", "--limit", "2")
    assert [row[0] for row in csv.reader(io.StringIO(done.stdout))] == ["trade_id", HOSTILE, "a1"]
    assert "Only the first 2 rows of more" in done.stderr
    done = tapeline(folder, "sql", "select '=1+1' as x", *BOOKS, "--format", "csv")
    assert done.stdout.splitlines()[1] == "'=1+1"
    listed = tapeline(folder, "sql", *BOOKS, "--json")
    assert [one["kind"] for one in json.loads(listed.stdout)].count("view") == 2
    assert "running_buy" in tapeline(folder, "sql", *BOOKS).stdout
    wrong = tapeline(folder, "sql", "select * from tades", *BOOKS)
    assert (wrong.returncode, "Did you mean 'trades'?" in wrong.stderr) == (2, True)
