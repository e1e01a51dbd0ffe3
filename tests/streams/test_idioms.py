"""Spark's usual idioms through the books: windows as keys, averages, inner joins."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Changes, DeclarationError, Each, Files, Memory, Pipeline, Snapshot, Stream
from tapeline.books.revisions import changes, why
from tapeline.books.sql import ask_sql, askable
from tapeline.books.sql_dialects import DuckDBSnapshot
from tapeline.books.views import views_of
from tapeline.serve.requests import ReadRequest, ask
from tapeline.testing import Trial

HOUR = datetime(2026, 11, 13, 14, tzinfo=UTC)
NEXT = datetime(2026, 11, 13, 15, tzinfo=UTC)
SCHEMA = "id string, version int, shop string, at timestamp, price decimal(10,2), pieces int"


def shop() -> Pipeline:
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("landing/", schema=SCHEMA))
    pipeline.reference("shops", Files("shops.csv", format="csv"))

    @pipeline.table(key="id", sequence_by="version", time="at")
    def sales(raw: Stream, shops: Snapshot) -> DataFrame:
        return raw.join(shops, "shop")

    @pipeline.summary(key=["w", "city"], time="w", width="1 hour")
    def by_hour(sales: Stream) -> DataFrame:
        return sales.groupBy(F.window("at", "1 hour").alias("w"), "city").agg(
            F.avg("price").alias("price"),
            F.count("*").alias("sales"),
            F.avg("pieces").alias("pieces"),
        )

    @pipeline.summary(key=["window"], time="window", width="1 hour")
    def sliding(sales: Stream) -> DataFrame:
        hours = sales.groupBy(F.window("at", "1 hour", "30 minutes"))
        return hours.agg(F.sum("price").alias("money"))

    pipeline.view(
        "dearest",
        "select sales.id, sales.price, by_hour.price as mean from sales join by_hour "
        "on sales.city = by_hour.city and sales.at >= w_start and sales.at < w_end "
        "where sales.price > by_hour.price",
    )

    @pipeline.sink(Memory())
    def told(by_hour: Changes) -> Changes:
        return by_hour

    @pipeline.alert()
    def dear(by_hour: Each) -> bool:
        """The average price is above three."""
        return bool((by_hour["price"] or 0) > 3)

    return pipeline


def sale(key: str, at: str, price: str | None, shop: str = "a", version: int = 1) -> dict[str, Any]:
    moment = f"2026-11-13T{at}:00Z"
    return {"id": key, "version": version, "shop": shop, "at": moment, "price": price, "pieces": 1}


@pytest.fixture(scope="module")
def trial(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    folder = tmp_path_factory.mktemp("idioms")
    (folder / "shops.csv").write_text("shop,city\na,Ulm\nb,Bern\n")
    with Trial(shop(), folder / "root", project=folder) as trial:
        first = [sale("1", "14:05", "1.00"), sale("2", "14:10", "1.01"), sale("3", "14:50", "0.99")]
        first.append(sale("8", "14:40", "3.00", "b"))
        trial.feed(raw=[*first, sale("4", "14:20", "7", "nowhere"), sale("5", "15:01", None, "b")])
        trial.feed(raw=[sale("6", "14:30", "2.00"), sale("7", "14:31", None)])
        trial.feed(raw=[sale("6", "14:30", "1.00", version=2)])
        yield trial


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["w_start"], row["w_end"], row["city"]


ULM, BERN = (HOUR, NEXT, "Ulm"), (NEXT, NEXT.replace(hour=16), "Bern")
DEAR = (HOUR, NEXT, "Bern")
EXPECTED = {
    ULM: (Decimal("1.000000"), 5, Decimal("1.0000")),
    DEAR: (Decimal("3.000000"), 1, Decimal("1.0000")),
    BERN: (None, 1, Decimal("1.0000")),
}


def numbers(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {key_of(row): (row["price"], row["sales"], row["pieces"]) for row in rows}


def test_a_window_is_its_start_and_end_and_an_average_a_number(trial: Trial) -> None:
    rows = trial.read("by_hour")
    assert numbers(rows) == EXPECTED
    measures = ["price", "sales", "pieces", "_entries", "_status"]
    assert list(rows[0]) == ["w_start", "w_end", "city", *measures]
    assert {row["_status"] for row in rows} == {"provisional", "open"}
    assert trial.unbalanced() == []


def test_a_record_counts_in_every_sliding_window(trial: Trial) -> None:
    found = {row["window_start"]: row["money"] for row in trial.read("sliding")}
    assert found[HOUR] == Decimal("7.00")
    assert sum(found.values()) == 2 * Decimal("7.00")


def test_a_record_without_a_match_is_dropped_with_the_reason(trial: Trial) -> None:
    totals = trial.books.totals()["sales"]
    assert totals.verdicts["dropped"] == 1
    assert totals.reasons["no match in shops"] == 1


def test_sql_views_and_the_api_say_the_same(trial: Trial) -> None:
    books = trial.books
    asked = ask_sql(books, "select * exclude (_overflow) from by_hour").rows.to_pylist()
    assert numbers(asked) == EXPECTED
    (facts,) = [one for one in askable(books) if one["name"] == "by_hour"]
    assert facts["columns"]["price"] == "decimal(24,6)"
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        for one in views_of(books, DuckDBSnapshot(books.cut())):
            connection.execute(one.sql)
        assert numbers(connection.sql("from by_hour").to_arrow_table().to_pylist()) == EXPECTED
        running = connection.sql("from by_hour_running").columns
        assert "running_sales" in running
        assert "running_price" not in running
    read = ask(books, ReadRequest("by_hour", where=("city=Ulm",))).rows.to_pylist()
    assert numbers(read) == {ULM: EXPECTED[ULM]}
    assert "price__avg_sum" not in read[0]
    added_up = ReadRequest("by_hour", group=("w_start",), add_up=("price", "sales"))
    together = {row["w_start"]: row for row in ask(books, added_up).rows.to_pylist()}
    assert (together[HOUR]["price"], together[HOUR]["sales"]) == (Decimal("1.400000"), 6)
    assert (together[NEXT]["price"], together[NEXT]["sales"]) == (None, 1)
    (flagged,) = ask(books, ReadRequest("by_hour", group=("_overflow",))).rows.to_pylist()
    assert flagged["_status"] == "open provisional"


def test_spark_reads_the_same_averages(trial: Trial, spark: Any) -> None:
    from tapeline.books.averages import in_spark
    from tapeline.books.exact import Kind

    kind = Kind.of("decimal(20,2)")
    journal = f"parquet.`{trial.books.layout.journal('by_hour')}`"
    parts = "sum(price__avg_sum) as s, sum(price__avg_count) as n"
    sums = f"select city, {parts} from {journal} group by city"
    rows = spark.sql(f"select city, {in_spark('s', 'n', kind)} as price from ({sums})").collect()
    assert {row.city: row.price for row in rows} == {
        "Ulm": Decimal("1.000000"),
        "Bern": Decimal("3.000000"),
    }
    odd = spark.sql(f"select {in_spark('cast(-20.00 as decimal(20,2))', '3', kind)} as price")
    assert odd.collect()[0].price == Decimal("-6.666667")


def test_a_view_reads_tables_beside_summaries(trial: Trial, tmp_path: Path) -> None:
    expected = {"id": "2", "price": Decimal("1.01"), "mean": Decimal("1.000000")}
    assert trial.read("dearest") == [expected]
    assert ask_sql(trial.books, "select * from dearest").rows.to_pylist() == [expected]
    wrong = shop()
    wrong.view("wrong", "select prize from by_hour")
    (tmp_path / "shops.csv").write_text("shop,city\na,Ulm\n")
    with pytest.raises(DeclarationError, match="view 'wrong' does not work"):
        Trial(wrong, tmp_path / "root", project=tmp_path, like=trial)


def test_why_tells_how_an_average_moved(trial: Trial) -> None:
    found = why(trial.books, "by_hour", [HOUR.isoformat(), NEXT.isoformat(), "Ulm"])
    assert [str(one.value["price"]) for one in found] == ["1.000000", "1.250000", "1.000000"]
    assert [str(one.change["price"]) for one in found] == ["1.000000", "0.250000", "-0.250000"]
    assert [one.change["sales"] for one in found] == [3, 2, 0]
    assert {(r["record"], r["price"]) for r in found[1].records} == {
        ("6", Decimal("2.00")),
        ("7", None),
    }
    moved = changes(trial.books, datetime(2026, 1, 1, tzinfo=UTC), "by_hour")
    assert {str(one["new"]["price"]) for one in moved} == {"1.000000", "3.000000", "None"}


def test_a_sink_sends_averages_and_an_alert_looks_at_them(trial: Trial) -> None:
    sent = [row for row in trial.sent("told") if row["city"] == "Ulm"]
    assert [str(row["_new"]["price"]) for row in sent] == ["1.000000", "1.250000", "1.000000"]
    assert sent[1]["_old"] == {
        "price": Decimal("1.000000"),
        "sales": 3,
        "pieces": Decimal("1.0000"),
    }


def test_balances_keep_the_parts(trial: Trial, tmp_path: Path) -> None:
    from tapeline.books.fold import write_balances

    summary = trial.plan.pipeline.summaries["by_hour"]
    write_balances(trial.books.layout, summary, 2)
    assert numbers(trial.read("by_hour")) == EXPECTED
