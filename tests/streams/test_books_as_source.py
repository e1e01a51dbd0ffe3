"""The books read by Spark: `spark.read` and `spark.readStream` of format "tapeline"."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tapeline.operate.backup import back_up, restore
from tapeline.settings import Settings
from tapeline.spark import books_source
from tapeline.testing import Books, Trial, plan_of
from tests.support.doc_pages import REPOSITORY, blocks

FILE = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream

SALE = "id string, version int, shop string, sold_at timestamp, amount decimal(12,2)"
pipeline = Pipeline("shops")
pipeline.source("raw", Files("drop/", schema=SALE))


@pipeline.table(key="id", sequence_by="version", time="sold_at")
def sales(raw: Stream) -> DataFrame:
    return raw


@pipeline.summary(key=["hour", "shop"], time="hour", width="1 hour")
def takings(sales: Stream) -> DataFrame:
    hour = F.window("sold_at", "1 hour").start.alias("hour")
    return sales.groupBy(hour, "shop").agg(
        F.sum("amount").alias("amount"), F.avg("amount").alias("mean"), F.count("*").alias("n")
    )


pipeline.view("by_shop", "select shop, sum(amount) as amount from takings group by shop")
"""
PAGE = REPOSITORY / "docs" / "spark.md"
START = datetime(2026, 11, 13, 10, tzinfo=UTC)
# id, version, shop, minutes after START, amount
BATCHES = [
    [("a", 1, "north", 5, "10.10"), ("b", 1, "south", 6, "0.01"), ("c", 1, "north", 65, "7.00")],
    [("a", 2, "north", 5, "11.10"), ("d", 1, "north", 7, "99999999.99")],
    [("e", 1, "south", 1, "5.00")],
    [("b", 2, "south", 6, "0.02"), ("b", 2, "south", 6, "0.02")],
]


class Shop:
    """The books of FILE in a folder; its clock moves an hour with every batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pipeline.py").write_text(FILE)
        (folder / "tapeline.toml").write_text("root = 'books'\n")
        (folder / "drop").mkdir()
        plan = plan_of("pipeline.py", Settings(project=folder))
        self.fed: list[list[Any]] = []
        self.trial = Trial(plan.pipeline, folder, clock=lambda: self.hour(len(self.fed)))

    def feed(self, batch: list[Any]) -> None:
        self.fed.append(batch)
        names = ("id", "version", "shop", "sold_at", "amount")
        rows = [(i, v, s, (START + timedelta(minutes=m)).isoformat(), x) for i, v, s, m, x in batch]
        self.trial.feed(raw=[dict(zip(names, row, strict=True)) for row in rows])

    def hour(self, number: int) -> datetime:
        return START + timedelta(hours=number)

    @property
    def options(self) -> dict[str, str]:
        return {"project": str(self.folder)}

    def read(self, spark: SparkSession, name: str, **more: str) -> DataFrame:
        return spark.read.format("tapeline").options(**self.options, **more).load(name)

    def expected(self, through: int) -> dict[tuple[datetime, str], tuple[Decimal, int]]:
        """The oracle: the highest version of each sale, added up in Python."""
        newest: dict[str, tuple[Any, ...]] = {}
        for one in (row for batch in self.fed[:through] for row in batch):
            if one[0] not in newest or newest[one[0]][1] < one[1]:
                newest[one[0]] = one
        sums: dict[Any, list[Decimal]] = defaultdict(list)
        for _, _, shop, minutes, amount in newest.values():
            sums[START + timedelta(hours=minutes // 60), shop].append(Decimal(amount))
        return {key: (sum(found, Decimal(0)), len(found)) for key, found in sums.items()}


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    return Shop(tmp_path)


def takings(frame: DataFrame) -> dict[Any, Any]:
    return {(r.hour.replace(tzinfo=UTC), r.shop): (r.amount, r.n) for r in utc(frame).collect()}


def utc(frame: DataFrame) -> DataFrame:
    """Times of the test's day, whatever the zone of this machine."""
    return frame.withColumn("hour", frame.hour.cast("timestamp_ntz"))


def test_spark_reads_what_the_books_say_now_and_as_reported(
    spark: SparkSession, shop: Shop
) -> None:
    for batch in BATCHES:
        shop.feed(batch)
    frame = shop.read(spark, "takings")
    assert frame.schema["amount"].dataType.simpleString() == "decimal(22,2)"
    assert takings(frame) == shop.expected(4)
    shown = frame.where("shop = 'north' and n = 2").first()
    assert shown is not None
    assert (shown.mean, shown["_status"]) == (Decimal("50000005.545000"), "provisional")
    for number in (1, 2, 3):
        then = shop.read(spark, "takings", as_reported=shop.hour(number).isoformat())
        assert takings(then) == shop.expected(number)
    assert shop.read(spark, "takings", as_reported="2026-11-13 09:00").count() == 0
    kept = {(r.id, r.version, r.amount) for r in shop.read(spark, "sales").collect()}
    newest = {("a", 2, "11.10"), ("b", 2, "0.02"), ("c", 1, "7.00"), ("e", 1, "5.00")}
    assert kept == {(i, v, Decimal(x)) for i, v, x in newest | {("d", 1, "99999999.99")}}
    by_shop = {row.shop: row.amount for row in shop.read(spark, "by_shop").collect()}
    assert by_shop == {"north": Decimal("100000018.09"), "south": Decimal("5.02")}


def test_a_dataframe_keeps_its_batch_and_a_new_one_reads_the_last(
    spark: SparkSession, shop: Shop
) -> None:
    shop.feed(BATCHES[0])
    frame = shop.read(spark, "takings")
    assert takings(frame) == shop.expected(1)
    shop.feed(BATCHES[1])
    assert takings(frame) == shop.expected(1)
    assert takings(shop.read(spark, "takings")) == shop.expected(2)


def test_a_large_table_is_read_by_several_tasks_at_one_cut(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in BATCHES:
        shop.feed(batch)
    monkeypatch.setattr(books_source, "ROWS_PER_TASK", 3)
    for more in ({}, {"changes": "true"}):
        source = books_source.BooksSource({**shop.options, "table": "sales", **more})
        reader = source.reader(source.schema())
        parts = reader.partitions()
        assert len(parts) > 1
        rows = [row for one in parts for batch in reader.read(one) for row in batch.to_pylist()]
        found = sorted((r["id"], r["version"], r["_sign"], r["_batch"]) for r in rows)
        assert found == sorted(
            (r.id, r.version, r["_sign"], r["_batch"])
            for r in shop.read(spark, "sales", **more).collect()
        )


def stream(spark: SparkSession, shop: Shop, name: str, checkpoint: Path, seen: list[Any]) -> None:
    """Run a stream of changes to its end, as a program that is started again does."""
    options = {**shop.options, "changes": "true"}
    frame = spark.readStream.format("tapeline").options(**options).load(name)
    writing = frame.writeStream.foreachBatch(lambda rows, _: seen.extend(rows.collect()))
    begun = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for _ in range(3):
        try:
            begun.start().awaitTermination()
        except StreamingQueryException as error:
            # Spark gives a Python process ten seconds to start, which a busy machine may need.
            if "failed to connect back" not in str(error):
                raise
        else:
            return


def test_a_stream_brings_every_published_change_once_across_restarts(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    seen: list[Any] = []
    numbers: dict[Any, Any] = {}
    for round_, batches in enumerate((BATCHES[:2], BATCHES[2:3], [], BATCHES[3:])):
        for batch in batches:
            shop.feed(batch)
        new: list[Any] = []
        stream(spark, shop, "takings", tmp_path / "checkpoint", new)
        assert bool(new) == bool(batches), round_
        for row in sorted(new, key=lambda one: one["_batch"]):
            key = (row.hour, row.shop)
            assert row["_old"] == numbers.get(key)  # nothing is missing, nothing came twice
            numbers[key] = row["_new"]
        seen += new
    assert {(r.hour, r.shop): (r.amount, r.n) for r in shop.read(spark, "takings").collect()} == {
        key: (number.amount, number.n) for key, number in numbers.items()
    }
    assert {row["_batch"] for row in seen} == {1, 2, 3, 4}
    rows: list[Any] = []
    stream(spark, shop, "sales", tmp_path / "of_sales", rows)
    signs: dict[Any, int] = defaultdict(int)
    for row in rows:
        signs[row.id, row.version] += row["_sign"]
    assert {one for one, sign in signs.items() if sign} == {
        (r.id, r.version) for r in shop.read(spark, "sales").collect()
    }
    assert set(signs.values()) == {0, 1}


def test_a_stream_refuses_books_that_were_restored_to_before_its_offset(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.feed(BATCHES[0])
    folder, _ = back_up(shop.trial.books, tmp_path / "backups", START, False, lambda *_: None)
    shop.feed(BATCHES[1])
    checkpoint, seen = tmp_path / "checkpoint", []
    stream(spark, shop, "takings", checkpoint, seen)
    shop.trial.close()
    home = shop.trial.books.layout.home
    home.rename(tmp_path / "lost")
    restore(Books(shop.trial.plan, home), folder, lambda *_: None)
    with pytest.raises(
        Exception, match="OTHER_BOOKS: this stream has read up to batch 2 of epoch 1"
    ):
        stream(spark, shop, "takings", checkpoint, [])
    again: list[Any] = []
    stream(spark, shop, "takings", tmp_path / "anew", again)
    assert {row["_batch"] for row in again} == {1}


def test_the_examples_of_the_page_run(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in BATCHES:
        shop.feed(batch)
    shop.trial.close()
    examples = [block.text for block in blocks(PAGE) if block.kind == "python"]
    reading, streaming, running = examples[:3]
    names: dict[str, Any] = {"spark": spark, "pipeline": shop.trial.plan.pipeline}
    for example in (reading, streaming):
        exec(example.replace('"coffee"', repr(str(shop.folder))), names)
    assert takings(names["takings"]) == shop.expected(4)
    assert takings(names["then"]) == shop.expected(2)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert spark.table("changed_takings").agg({"_batch": "max"}).collect() == [(4,)]
    monkeypatch.chdir(shop.folder)
    hidden = shop.folder / "drop" / ".late.json"
    hidden.write_text(json.dumps({"id": "f", "version": 1, "shop": "north", "amount": "1.00"}))
    hidden.rename(shop.folder / "drop" / "late.json")
    exec(running, names)
    assert names["handle"].lastProgress["numInputRows"] == 1


def test_what_is_asked_wrongly_is_refused_with_the_remedy(spark: SparkSession, shop: Shop) -> None:
    shop.feed(BATCHES[0])
    with pytest.raises(Exception, match=r"'taking' not found. Did you mean 'takings'\?"):
        shop.read(spark, "taking").collect()
    with pytest.raises(Exception, match=r"unknown option 'projekt'. Did you mean 'project'\?"):
        spark.read.format("tapeline").options(projekt="x").load("takings").collect()
    stream_of = spark.readStream.format("tapeline").options(**shop.options).load("takings")
    with pytest.raises(Exception, match=r"add .option\('changes', 'true'\)"):
        stream_of.writeStream.format("noop").start().processAllAvailable()
    with pytest.raises(Exception, match="'by_shop' has no published changes"):
        shop.read(spark, "by_shop", changes="true").collect()
