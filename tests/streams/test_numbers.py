"""Numbers that outgrow their types, from records to every reader: what nine data sets found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Changes, Files, Memory, Pipeline, Stream
from tapeline.books.audit import audit
from tapeline.books.commits import read_commits
from tapeline.books.exact import Kind
from tapeline.books.fold import folded, typed
from tapeline.books.revisions import why
from tapeline.books.sql import ask_sql
from tapeline.books.sql_dialects import DuckDBSnapshot, SparkLive
from tapeline.books.views import views_of
from tapeline.operate.backup import back_up
from tapeline.operate.doctor.tables import numbers
from tapeline.serve.requests import ReadRequest, ask
from tapeline.show import as_json
from tapeline.testing import Trial

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = "id string, at timestamp, whole bigint, money decimal(38,16)"
MONEY, WHOLE = "6000000000000000000000.0000000000000001", 6 * 10**18
TWICE = Decimal("12000000000000000000000.0000000000000002")


def declared() -> Pipeline:
    found = Pipeline("large")
    found.source("raw", Files("landing/", schema=SCHEMA))

    @found.table(key="id", time="at")
    def rows(raw: Stream) -> DataFrame:
        return raw

    @found.summary(key="hour", time="hour", width="1 hour")
    def totals(rows: Stream) -> DataFrame:
        hour = F.window("at", "1 hour").start.alias("hour")
        sums = F.sum("whole").alias("whole"), F.sum("money").alias("money")
        return rows.groupBy(hour).agg(*sums, F.count("*").alias("n"))

    @found.sink(Memory())
    def sent(totals: Changes) -> Any:
        return totals

    return found


def record(key: str, hour: int) -> dict[str, Any]:
    at = f"2026-11-13T{hour:02}:05:00Z"
    return {"id": key, "at": at, "whole": WHOLE, "money": MONEY}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(declared(), tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def trial(prepared: Trial, tmp_path: Path) -> Iterator[Trial]:
    made = Trial(declared(), tmp_path, like=prepared)
    yield made
    made.close()


def balances(trial: Trial) -> bool:
    return all(check.balances for check in audit(trial.books, full=True))


def test_a_batch_whose_totals_pass_every_limit_is_published_and_balances(trial: Trial) -> None:
    """Two hours, each of whose numbers fits: their sum, a control total, does not."""
    trial.feed(raw=[record("a", 10), record("b", 11)])
    (body,) = [json.loads(r.body) for r in read_commits(trial.books.layout.commits) if r.body]
    for said in (body["tables"]["totals"]["measures"], body["totals"]["totals"]["measures"]):
        assert said == {"whole": str(2 * WHOLE), "money": str(TWICE), "n": "2"}
    assert balances(trial)
    assert [row["whole"] for row in trial.read("totals")] == [WHOLE, WHOLE]
    assert list(numbers(trial.books)) == []


def test_sound_books_of_long_numbers_are_no_alarm(trial: Trial, tmp_path: Path) -> None:
    """More digits than Python's decimals have by default, in several batches."""
    for number in range(5):
        some = {**record(f"r{number}", 10 + number), "money": f"{10**20 + number}.{1:016}"}
        trial.feed(raw=[some | {"whole": 1}])
    assert balances(trial)
    assert all(check.expected == check.found for check in audit(trial.books, full=True))
    back_up(trial.books, tmp_path / "backup", datetime.now(UTC), False, lambda done, total: None)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_number_beyond_its_type_is_shown_in_full(trial: Trial, spark: Any, batches: int) -> None:
    """In one batch, and across two; an innocent record stands beside them."""
    records = [record("a", 10), record("b", 10), record("c", 11)]
    for some in [records] if batches == 1 else [records[:1], records[1:]]:
        trial.feed(raw=some)
    assert trial.verdicts("rows") == {"kept": 3}
    whole, money = [2 * WHOLE, WHOLE], [TWICE, Decimal(MONEY)]
    for rows in (trial.read("totals"), ask(trial.books, ReadRequest("totals")).rows.to_pylist()):
        assert [row["whole"] for row in rows] == whole
        assert [row["money"] for row in rows] == money
    first, second = json.loads(as_json(trial.arrow("totals")))
    assert (first["whole"], first["money"]) == (str(2 * WHOLE), str(TWICE))
    assert second["money"] == MONEY
    asked = ask_sql(trial.books, "select whole, money, _overflow from totals").rows.to_pylist()
    kept = {"whole": WHOLE, "money": Decimal(MONEY), "_overflow": False}
    assert asked == [{"whole": None, "money": None, "_overflow": True}, kept]
    assert why(trial.books, "totals", ["2026-11-13T10:00:00Z"])[-1].value["money"] == TWICE
    last = {row["hour"].hour: row["_new"] for row in trial.sent("sent")}
    assert last[10] == {"whole": 2 * WHOLE, "money": TWICE, "n": 2}
    (finding,) = numbers(trial.books)
    assert finding.state == "warning"
    assert "1 row has a number too large for its type" in finding.words
    assert balances(trial)
    views_agree(trial, spark)


def views_agree(trial: Trial, spark: Any) -> None:
    """DuckDB and Spark alone say the same: NULL with a flag, in running totals from there on."""
    books = trial.books
    expected = [(None, True), (Decimal(MONEY), False)]
    with duckdb.connect() as connection:
        for one in views_of(books, DuckDBSnapshot(books.cut())):
            connection.execute(one.sql)
        query = "select money, _overflow from totals order by hour"
        assert connection.execute(query).fetchall() == expected
        running = "select running_money, _overflow from totals_running order by hour"
        assert connection.execute(running).fetchall() == [(None, True)] * 2
    folder = f"parquet.`{books.layout.journal('totals')}`"
    columns = {"`whole`": "bigint", "`money`": "decimal(38,16)"}
    kinds = {name: Kind.of(kind) for name, kind in columns.items()}
    sums = SparkLive(books.layout).sums(folder, kinds)
    measures, overflow = typed({"whole": kinds["`whole`"], "money": kinds["`money`"]}, str)
    fold = folded(folder, ["hour"], sums)
    rows = spark.sql(f"select {', '.join(measures)}, {overflow} from ({fold}) order by hour")
    assert [(row.money, row._overflow) for row in rows.collect()] == expected
    assert [row.whole for row in rows.collect()] == [None, WHOLE]
