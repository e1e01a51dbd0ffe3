"""One static pass over the tape agrees with the books; what differs is named, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, OperationError, Pipeline, Snapshot, Stream, expect_or_quarantine
from tapeline.books.compare import compare
from tapeline.errors import QuestionError
from tapeline.operate.one_pass import run_batch
from tapeline.testing import Trial

SCHEMA = (
    "id string, version int, shop string, at timestamp, price decimal(10,2), gone boolean, n int"
)


def shop() -> Pipeline:
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("landing/", schema=SCHEMA))
    pipeline.reference("shops", Files("shops.csv", format="csv"))

    @pipeline.table(key="id", sequence_by="version", apply_as_deletes="gone", time="at")
    @expect_or_quarantine("the price is above zero", "price > 0")
    def sales(raw: Stream, shops: Snapshot) -> DataFrame:
        return raw.drop("gone").join(shops, "shop", "left")

    pipeline.table("dear", sql="select id, city, at, price from sales where price > 2")

    @pipeline.summary(key=["hour", "city"], time="hour", width="1 hour")
    def by_hour(sales: Stream) -> DataFrame:
        return sales.groupBy(F.window("at", "1 hour").alias("hour"), "city").agg(
            F.sum("price").alias("price"),
            F.avg("price").alias("mean"),
            F.avg("n").alias("pieces"),
            F.count("*").alias("sales"),
        )

    pipeline.summary(
        "cities",
        sql="select * from (select city, shop, price from sales) "
        "pivot (sum(price) for shop in ('a', 'b'))",
        key="city",
    )
    return pipeline


def sale(key: str, at: str, price: str, shop: str = "a", **more: Any) -> dict[str, Any]:
    moment = f"2026-11-13T{at}:00Z"
    return {"id": key, "version": 1, "shop": shop, "at": moment, "price": price, "n": 3, **more}


BATCHES = [
    [sale("1", "14:05", "1.00"), sale("2", "14:10", "2.50"), sale("3", "14:50", "0.99", "b")],
    [sale("1", "14:05", "1.00"), sale("4", "16:40", "-3.00"), sale("5", "16:41", "3.00", "b")],
    [sale("6", "14:20", "7.00"), sale("2", "14:10", "2.00", version=2), "not JSON"],
    [sale("3", "14:50", "0.99", "b", version=2, gone=True), sale("7", "16:59", "1.50", "q")],
    [sale("2", "14:10", "9.00", version=1), sale("8", "14:59", "4.00", n=4)],
]


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trial, Path]]:
    folder = tmp_path_factory.mktemp("one_pass")
    (folder / "shops.csv").write_text("shop,city\na,Ulm\nb,Bern\n")
    with Trial(shop(), folder / "root", project=folder) as trial:
        for batch in BATCHES:
            trial.feed(raw=batch)
        results = folder / "results"
        counts = run_batch(trial.plan, trial.settings, results)
        assert counts["sales"] == 6  # without 4, which breaks a rule, and 3, which was deleted
        yield trial, results


def test_all_numbers_agree_with_the_books(made: tuple[Trial, Path]) -> None:
    trial, folder = made
    found = compare(trial.books, folder)
    assert found.differences == []
    assert found.notes == []
    assert found.numbers > 10
    assert trial.unbalanced() == []


def test_a_number_by_hand(made: tuple[Trial, Path]) -> None:
    rows = pq.read_table(made[1] / "by_hour.parquet").to_pylist()
    (ulm,) = [row for row in rows if row["city"] == "Ulm"]
    assert (ulm["price"], ulm["sales"]) == (Decimal("14.00"), 4)  # 1.00 + 2.00 + 7.00 + 4.00


def test_what_differs_is_named_with_what_the_books_know(
    made: tuple[Trial, Path], tmp_path: Path
) -> None:
    trial, folder = made
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    rows = pq.read_table(folder / "by_hour.parquet")
    without_late = [
        {**row, "price": row["price"] - 7, "sales": row["sales"] - 1}
        if row["city"] == "Ulm"
        else row
        for row in rows.to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(without_late, rows.schema), tmp_path / "by_hour.parquet")
    sales = pq.read_table(folder / "sales.parquet")
    pq.write_table(pa.concat_tables([sales, sales.slice(0, 1)]), tmp_path / "sales.parquet")
    found = compare(trial.books, tmp_path)
    rows_of, price, count = found.differences
    assert (rows_of.name, rows_of.other - rows_of.books) == ("sales", 1)
    assert (price.measure, price.books - price.other, price.key["city"]) == ("price", 7, "Ulm")
    assert (count.books, count.other) == (4, 3)
    assert "came late" in price.why
    assert "corrected" in price.why


def test_a_folder_without_results_is_refused(made: tuple[Trial, Path], tmp_path: Path) -> None:
    trial, _ = made
    with pytest.raises(QuestionError, match="Make some with 'tapeline run --batch'"):
        compare(trial.books, tmp_path)
    with pytest.raises(OperationError, match="inside the books"):
        run_batch(trial.plan, trial.settings, trial.books.layout.home / "x")
