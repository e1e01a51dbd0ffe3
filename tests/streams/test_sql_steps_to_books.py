"""The same pipeline in Python and in SQL gives the same books."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import DeclarationError, Files, Pipeline, Snapshot, Stream, expect_or_quarantine
from tapeline.settings import Settings
from tapeline.spark.compile import prepare
from tapeline.testing import Trial, plan_of
from tests.support.doc_pages import REFERENCE, pipelines

SCHEMA = (
    "id string, version int, shop string, side string, at timestamp, "
    "items array<struct<name: string, amount: decimal(10,2)>>"
)
KNOWN = expect_or_quarantine("the shop is known", "city is not null")


def declared() -> Pipeline:
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("landing/", schema=SCHEMA))
    pipeline.reference("shops", Files("shops.csv", format="csv"))
    return pipeline


def in_sql() -> Pipeline:
    pipeline = declared()
    pipeline.table(
        "sales",
        sql="""
            select r.id, r.side, r.at, r.items, s.city  -- the place of a record is not written
            from raw r
            left join shops s on r.shop = s.shop
            where r.side <> 'TEST'
        """,
        key="id",
        sequence_by="version",
        time="at",
        expect=[KNOWN],
    )
    pipeline.table(
        "lines",
        sql="""
            with opened as (select * from sales lateral view explode(items) as item)
            select id, side, at, city, item.name, item.amount from opened
        """,
    )
    pipeline.summary(
        "by_hour",
        sql="""
            select window(at, '1 hour') as hour, city, sum(amount) as amount, avg(amount) as mean,
                count(*) filter (where side = 'BUY') as buys
            from lines group by window(at, '1 hour'), city
        """,
        key=["hour", "city"],
        time="hour",
        width="1 hour",
    )
    pipeline.summary(
        "by_side",
        sql="""
            select * from (select city, side, amount from lines)
            pivot (sum(amount) as amount, count(*) as n for side in ('BUY' as buy, 'SELL' as sell))
        """,
        key="city",
    )
    return pipeline


def in_python() -> Pipeline:
    pipeline = declared()

    @pipeline.table(key="id", sequence_by="version", time="at")
    @KNOWN
    def sales(raw: Stream, shops: Snapshot) -> DataFrame:
        joined = raw.join(shops, "shop", "left").where("side <> 'TEST'")
        return joined.select("id", "side", "at", "items", "city", "_position")

    @pipeline.table
    def lines(sales: Stream) -> DataFrame:
        opened = sales.withColumn("item", F.explode("items"))
        kept = ("id", "side", "at", "city", "item.name", "item.amount", "_position")
        return opened.select(*kept)

    @pipeline.summary(key=["hour", "city"], time="hour", width="1 hour")
    def by_hour(lines: Stream) -> DataFrame:
        return lines.groupBy(F.window("at", "1 hour").alias("hour"), "city").agg(
            F.sum("amount").alias("amount"),
            F.avg("amount").alias("mean"),
            F.count(F.when(F.col("side") == "BUY", 1)).alias("buys"),
        )

    @pipeline.summary(key="city")
    def by_side(lines: Stream) -> DataFrame:
        return (
            lines.groupBy("city")
            .pivot("side", ["BUY", "SELL"])
            .agg(F.sum("amount").alias("amount"), F.count(F.lit(1)).alias("n"))
            .withColumnsRenamed({f"{a}_{b}": f"{a.lower()}_{b}"
                                 for a in ("BUY", "SELL") for b in ("amount", "n")})
        )  # fmt: skip

    return pipeline


def record(dice: random.Random, key: int, version: int) -> dict[str, Any]:
    items = [
        {"name": dice.choice("xyz"), "amount": f"{dice.randrange(1000) / 100:.2f}"}
        for _ in range(dice.randrange(3))
    ]
    return {
        "id": f"s{key}", "version": version, "shop": dice.choice("abq"),
        "side": dice.choice(["BUY", "SELL", "BUY", "GIFT", "TEST"]),
        "at": f"2026-11-13T{dice.randrange(10, 13)}:{dice.randrange(60):02}:00Z", "items": items,
    }  # fmt: skip


def history(seed: int) -> list[list[dict[str, Any]]]:
    """Batches in which records repeat, are corrected, and come from a shop that nobody knows."""
    dice = random.Random(seed)
    records = [record(dice, key, 1) for key in range(40)]
    records += [record(dice, dice.randrange(40), 2) for _ in range(10)]
    records += dice.sample(records, 5)
    dice.shuffle(records)
    return [records[start : start + 11] for start in range(0, len(records), 11)]


@pytest.fixture(scope="module")
def both(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, Trial]:
    trials = []
    for make in (in_sql, in_python):
        folder = tmp_path_factory.mktemp(make.__name__)
        (folder / "shops.csv").write_text("shop,city\na,Ulm\nb,Bern\n")
        trials.append(Trial(make(), folder / "root", project=folder))
    for batch in history(7):
        for trial in trials:
            trial.feed(raw=batch)
    return trials[0], trials[1]


def test_the_books_are_equal(both: tuple[Trial, Trial]) -> None:
    sql, python = both
    for name in ("sales", "lines", "by_hour", "by_side"):
        one, other = (
            sorted(map(str, trial.arrow(name).select(sql.arrow(name).column_names).to_pylist()))
            for trial in both
        )
        assert one == other, name
        assert len(one) > 1
    for name in ("sales", "lines"):
        assert sql.verdicts(name) == python.verdicts(name)
    assert sql.unbalanced() == python.unbalanced() == []


def test_the_pivot_agrees_with_plain_python(both: tuple[Trial, Trial]) -> None:
    newest: dict[str, dict[str, Any]] = {}
    for one in (one for batch in history(7) for one in batch):
        if one["side"] != "TEST" and one["version"] >= newest.get(one["id"], one)["version"]:
            newest[one["id"]] = one
    amounts: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    counts: Counter[tuple[str, str]] = Counter()
    for one in newest.values():
        city = {"a": "Ulm", "b": "Bern"}.get(one["shop"])
        for item in one["items"] if city else ():
            amounts[str(city), one["side"]] += Decimal(item["amount"])
            counts[str(city), one["side"]] += 1
    found = {row["city"]: row for row in both[0].read("by_side")}
    for city in ("Ulm", "Bern"):
        for side in ("BUY", "SELL"):
            assert found[city][f"{side.lower()}_amount"] == amounts[city, side]
            assert found[city][f"{side.lower()}_n"] == counts[city, side]


def test_a_session_keeps_its_own_views(both: tuple[Trial, Trial], spark: Any) -> None:
    assert not [t.name for t in spark.catalog.listTables() if t.name.startswith("tapeline_")]


def test_the_pipeline_in_the_reference_keeps_books(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "sql_rides.py").write_text(pipelines(REFERENCE)["sql_rides.py"])
    (tmp_path / "stations.csv").write_text("station,district\nMITTE,centre\n")
    plan = plan_of("sql_rides.py", Settings(project=tmp_path))
    ride = {"station": "mitte ", "started_at": "2026-11-13T10:05:00Z", "kind": "DAY"}
    with Trial(plan.pipeline, tmp_path / "root", project=tmp_path) as trial:
        trial.feed(raw_rides=[
            {**ride, "ride_id": "1", "fare": "2.50"}, {**ride, "ride_id": "2", "fare": "-1"},
            {**ride, "ride_id": "3", "fare": "4.00", "kind": "NIGHT"},
            {**ride, "ride_id": "1", "fare": "2.50"}, {**ride, "ride_id": "4", "station": "x"},
        ])  # fmt: skip
        (taken,) = trial.read("takings")
        assert (taken["fares"], taken["rides"]) == (Decimal("6.50"), 2)
        (kinds,) = trial.read("kinds")
        assert (kinds["day_fares"], kinds["night_rides"]) == (Decimal("2.50"), 1)
        assert trial.verdicts("rides") == {"kept": 2, "quarantined": 2, "duplicate": 1}
        assert trial.unbalanced() == []


def refused(spark: Any, table: str, summary: str = "", **said: Any) -> str:
    pipeline = declared()
    pipeline.table("sales", sql=table)
    if summary:
        pipeline.summary("totals", sql=summary, **said)
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(DeclarationError) as caught:
        prepare(spark, plan_of(pipeline), {"shops": pa.table({"shop": ["a"], "city": ["Ulm"]})})
    assert "test_sql_steps_to_books.py:" in str(caught.value)
    assert "\n" not in str(caught.value).split("\n    ", maxsplit=1)[0]
    return str(caught.value)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select id,\n nope from raw", "`nope` cannot be resolved.*line 2 of the SQL"),
        ("select id nope nope from raw", "Syntax error at or near 'nope'.*line 1 of the SQL"),
        ("select id from raw where shop in (select shop from shops)", "query inside a query"),
        ("select id, row_number() over (order by at) as n from raw", "window over other rows"),
        ("select distinct id from raw", "uses Distinct|uses Deduplicate|uses Aggregate"),
        ("select id from raw union all select shop as id from raw", "uses Union"),
        ("select id from raw order by id", "uses Sort"),
        ("select a.id from raw a join raw b on a.id = b.id", "joins its stream to itself"),
        ("select id, current_timestamp() as now from raw", "the machine's clock"),
        ("select shop, count(*) as n from raw group by shop", "uses Aggregate|loses '_position'"),
    ],
)
def test_what_a_step_cannot_hold_is_refused_in_a_sentence(spark: Any, sql: str, words: str) -> None:
    text = refused(spark, sql)
    assert re.search(words, text), text
    assert "tapeline_" not in text.replace("test_sql_steps_to_books", "")
    assert "_position" not in text or "loses" in text


def test_a_pivot_of_what_does_not_add_up_is_refused(spark: Any) -> None:
    text = refused(
        spark,
        "select * from raw",
        "select * from (select shop, side, version from sales) "
        "pivot (max(version) for side in ('BUY', 'SELL'))",
        key="shop",
    )
    assert "not additive" in text


def test_numbers_and_nulls_may_be_pivoted(spark: Any, tmp_path: Path) -> None:
    pipeline = Pipeline("numbers")
    pipeline.source("raw", Files("landing/", schema="id string, kind bigint, day date, n int"))
    pipeline.table("rows", sql="select * from raw")
    pipeline.summary(
        "kinds",
        sql="select * from (select kind, day, n from rows) "
        "pivot (sum(n) for kind in (1, 2 as two))",
        key="day",
    )

    @pipeline.summary(key="kind")
    def days(rows: Stream) -> DataFrame:
        made = rows.groupBy("kind").pivot("day", [date(2026, 11, 13)]).agg(F.sum("n"))
        return made.withColumnRenamed("2026-11-13", "friday")

    with Trial(pipeline, tmp_path / "root", project=tmp_path) as trial:
        trial.feed(raw=[{"id": "a", "kind": 1, "day": "2026-11-13", "n": 3},
                        {"id": "b", "kind": 2, "day": "2026-11-13", "n": 4},
                        {"id": "c", "kind": None, "day": "2026-11-14", "n": 5}])  # fmt: skip
        by_day = {str(row["day"]): (row["1"], row["two"]) for row in trial.read("kinds")}
        assert by_day == {"2026-11-13": (3, 4), "2026-11-14": (0, 0)}
        assert {row["kind"]: row["friday"] for row in trial.read("days")} == {1: 3, 2: 4, None: 0}
        assert trial.unbalanced() == []
