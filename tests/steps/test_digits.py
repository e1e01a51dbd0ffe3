"""Where Spark would cut digits, `plan --check` says so; where the user rounds, it does not."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from typer.testing import CliRunner

from tapeline import DeclarationError, Files, Pipeline, Stream, expect_or_quarantine
from tapeline.cli import app
from tapeline.plan import resolve
from tapeline.spark.compile import prepare
from tapeline.testing import Trial

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = (
    "id string, quantity decimal(21,10), price decimal(20,8), long decimal(38,30), n bigint, "
    "small decimal(12,2)"
)


def declared(column: Any, rule: str = "true") -> Pipeline:
    found = Pipeline("digits")
    found.source("raw", Files("landing/", schema=SCHEMA))

    @found.table(key="id")
    @expect_or_quarantine("it is as it should be", rule)
    def rows(raw: Stream) -> DataFrame:
        return raw.withColumn("x", column())

    @found.summary(key="id")
    def totals(rows: Stream) -> DataFrame:
        return rows.groupBy("id").agg(F.sum("long").alias("long"))

    return found


def cuts(spark: Any, column: Any, rule: str = "true") -> list[str]:
    return prepare(spark, resolve(declared(column, rule)), {}).cuts


def product() -> Column:
    return F.col("quantity") * F.col("price")


CUT = {
    "a product of 42 digits": (product, "(quantity * price) needs 42 digits, 18 of them decimals"),
    "a sum": (lambda: F.col("long") + F.col("n"), "would round to 17 decimals"),
    "a product with a bigint": (lambda: F.col("quantity") * F.col("n"), "to 6 decimals"),
    "one type with an integer": (
        lambda: F.coalesce("long", F.lit(0)),
        "long is a decimal(38,30) and becomes a decimal(38,28)",
    ),
    "a case": (lambda: F.when(F.col("n") > 0, F.col("long")).otherwise(0), "decimals are cut"),
    "a float": (lambda: F.col("price") * 1.5, "becomes a double, which is not exact"),
    "a cast to more decimals than are left": (
        lambda: product().cast("decimal(38,18)"),
        "would round to 14 decimals",
    ),
    "deep inside": (lambda: F.abs(F.negate(product())), "needs 42 digits"),
}
FINE = {
    "exact": lambda: F.col("small") * F.col("small"),
    "cast": lambda: product().cast("decimal(30,4)"),
    "cast to what is left": lambda: product().cast("decimal(38,14)"),
    "rounded": lambda: F.round(product(), 4),
    "a floor": lambda: F.floor(product()),
    "factors cast": lambda: (
        F.col("quantity").cast("decimal(18,6)") * F.col("price").cast("decimal(18,8)")
    ),
    "a float on purpose": lambda: F.col("price").cast("double") * 1.5,
    "a decimal literal": lambda: F.col("price") * F.lit(Decimal("1.5")),
    "one type": lambda: F.coalesce("long", F.lit(0).cast("decimal(38,30)")),
    "a quotient": lambda: F.col("small") / F.col("small"),
}


@pytest.mark.parametrize("what", CUT)
def test_cut_digits_are_named_with_file_and_line(spark: Any, what: str) -> None:
    column, words = CUT[what]
    (found,) = cuts(spark, column)
    assert words in found
    assert found.startswith("tests/steps/test_digits.py:")
    assert "rows(): " in found
    assert ".cast(" in found


@pytest.mark.parametrize("what", FINE)
def test_what_is_exact_or_rounded_on_purpose_is_fine(spark: Any, what: str) -> None:
    assert cuts(spark, FINE[what]) == []


def test_a_rule_is_looked_at_too(spark: Any) -> None:
    (found,) = cuts(spark, lambda: F.lit(1), "quantity * price > 5")
    assert "needs 42 digits" in found


def test_new_books_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="needs 42 digits"):
        Trial(declared(product), tmp_path)


def test_a_share_of_many_decimals_keeps_them(tmp_path: Path) -> None:
    """The engine's own arithmetic: beside an integer 0 Spark would have cut two decimals."""
    trial = Trial(declared(lambda: F.lit(1)), tmp_path)
    number = "1.123456789012345678901234567891"
    trial.feed(raw=[{"id": "a", "long": number}, {"id": "b"}])
    found = {row["id"]: row["long"] for row in trial.read("totals")}
    assert found == {"a": Decimal(number), "b": 0}


def test_plan_check_refuses(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(
        "from pyspark.sql import functions as F\n"
        "from tapeline import Files, Pipeline, Stream\n"
        "pipeline = Pipeline('cut')\n"
        "pipeline.source('raw', Files('drop/', schema='a decimal(21,10), b decimal(20,8)'))\n"
        "@pipeline.table\n"
        "def rows(raw: Stream):\n"
        "    return raw.withColumn('x', F.col('a') * F.col('b'))\n"
    )
    result = CliRunner().invoke(app, ["plan", str(file), "--check"])
    assert result.exit_code != 0
    assert "(a * b) needs 42 digits" in str(result.exception or result.output)
