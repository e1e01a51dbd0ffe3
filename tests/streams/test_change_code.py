"""Code that is changed while it has books, on Spark and by the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tapeline.books.meanings import ChangedCodeError
from tapeline.cli import app
from tapeline.flow.change import Signed
from tapeline.operate.apply import apply_change
from tapeline.settings import Settings
from tapeline.testing import Deployment, why
from tests.support import command_line

PIPELINE = """
from pyspark.sql import DataFrame, functions as F
from tapeline import Files, Pipeline, Snapshot, Stream, expect_or_quarantine

pipeline = Pipeline("shop")
schema = "id string, at timestamp, item string, amount decimal(12,2)"
pipeline.source("raw", Files("landing/", schema=schema))
pipeline.reference("rates", Files("rates.csv", schema="item string, rate int"))
LEAST = 0

@pipeline.table(key="id", time="at")
@expect_or_quarantine("amount is large enough", f"amount > {LEAST}")
def sales(raw: Stream, rates: Snapshot) -> DataFrame:
    \"\"\"One row per sale.\"\"\"
    rated = raw.join(rates, "item", "left")
    return rated.withColumn("fee", (F.col("amount") * F.col("rate")).cast("decimal(14,2)"))

@pipeline.summary(key="item")
def totals(sales: Stream) -> DataFrame:
    return sales.groupBy("item").agg(F.sum("amount").alias("amount"), F.sum("fee").alias("fee"))
"""
COUNTS = """
@pipeline.summary(key="item")
def counts(sales: Stream) -> DataFrame:
    return sales.groupBy("item").agg(F.count("*").alias("n"))
"""


def deliver(project: Path, name: str, first: int) -> None:
    rows = [
        {"id": f"{n}", "at": "2026-11-13T10:00:00Z", "item": "ab"[n % 2], "amount": str(n)}
        for n in range(first, first + 6)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (project / "landing" / f"{name}.json").write_text(text)


def totals(shop: Deployment) -> dict[str, tuple[Decimal, Decimal]]:
    return {row["item"]: (row["amount"], row["fee"]) for row in shop.read("totals")}


def expected(least: int, rates: dict[range, int]) -> dict[str, tuple[Decimal, Decimal]]:
    """By item: the money, and the fee at the rate that was known when each record came."""
    found: dict[str, tuple[Decimal, Decimal]] = {}
    for numbers, rate in rates.items():
        for n in numbers:
            if n > least:
                amount, fee = found.get("ab"[n % 2], (Decimal(0), Decimal(0)))
                found["ab"[n % 2]] = (amount + n, fee + n * rate)
    return found


def test_a_changed_rule_and_an_added_summary(tmp_path: Path, spark: Any) -> None:
    settings = Settings(project=tmp_path, root=tmp_path / "books")
    (tmp_path / "landing").mkdir()
    file, rates = tmp_path / "pipeline.py", tmp_path / "rates.csv"
    file.write_text(PIPELINE)
    rates.write_text("item,rate\na,2\nb,2\n")
    deliver(tmp_path, "one", 0)
    Deployment("pipeline.py", settings).run_once(spark)
    rates.write_text("item,rate\na,3\nb,3\n")
    deliver(tmp_path, "two", 6)
    before = Deployment("pipeline.py", settings)
    before.run_once(spark)
    known = {range(6): 2, range(6, 12): 3}
    assert totals(before) == expected(0, known)
    reported = before.books.cut().at

    file.write_text(PIPELINE.replace("One row", "A row").replace("rated", "joined"))
    same = Deployment("pipeline.py", settings)
    same.run_once(spark)  # another docstring and other names of variables are no change
    assert apply_change(same.plan, settings, Signed("me"), session=spark).generation is None

    file.write_text(PIPELINE.replace("LEAST = 0", "LEAST = 3") + COUNTS)
    shop = Deployment("pipeline.py", settings)
    with pytest.raises(ChangedCodeError, match=r"sales changed .* counts is new"):
        shop.run_once(spark)
    said = CliRunner().invoke(
        app, ["plan", "--project", str(tmp_path), "--root", "books", "--json"]
    )
    noticed = {row["name"]: row for row in json.loads(said.stdout)}
    assert noticed["sales"]["change"] == "perhaps changed"
    assert any("amount > 0" in words for words in noticed["sales"]["why"])
    assert noticed["counts"]["change"] == "added"

    done = apply_change(shop.plan, settings, Signed("me", "a rule"), session=spark)
    assert done.generation == 2
    assert totals(shop) == expected(3, known)  # references as they were at each batch
    assert {row["item"]: row["n"] for row in shop.read("counts")} == {"a": 4, "b": 4}
    old = shop.books.read("totals", reported).to_pylist()
    assert {row["item"]: (row["amount"], row["fee"]) for row in old} == expected(0, known)
    assert [one.cause for one in why(shop.books, "totals", ["a"])][-1] == "code"
    assert shop.unbalanced() == []

    deliver(tmp_path, "three", 12)
    shop.run_once(spark)
    assert totals(shop) == expected(3, {**known, range(12, 18): 3})
    assert shop.unbalanced() == []


def test_old_books_say_that_they_do_not_know(tmp_path: Path) -> None:
    """`plan` compares without Spark what it can; books of earlier versions describe nothing."""
    archive = Path(__file__).parents[1] / "fixtures" / "books" / "sales.tar.gz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    said = CliRunner().invoke(app, ["plan", "--project", str(tmp_path / "sales"), "--json"])
    assert said.exit_code == 0, said.output
    rows = [row for row in json.loads(said.stdout) if row["kind"] in ("table", "summary")]
    assert {row["change"] for row in rows} == {"unknown"}


@pytest.mark.slow
@pytest.mark.spark
def test_a_change_is_built_beside_a_running_pipeline_and_survives_a_kill(tmp_path: Path) -> None:
    file, inbox = tmp_path / "pipeline.py", tmp_path / "inbox"
    file.write_text(command_line.PIPELINE)
    inbox.mkdir()
    (inbox / "one.csv").write_text("id,shop,money\n1,north,10.50\n2,south,4.00\n3,north,1\n")
    assert command_line.tapeline(tmp_path, "run", "--once").returncode == 0
    running = subprocess.Popen(
        [*command_line.COMMAND, "run"], cwd=tmp_path, env=command_line.ENVIRONMENT
    )
    try:
        wait_for(lambda: runs(tmp_path))
        file.write_text(command_line.PIPELINE.replace("money > 0", "money > 2"))
        killed = subprocess.run(
            [*command_line.COMMAND, "apply", "--yes"],
            cwd=tmp_path,
            env={**command_line.ENVIRONMENT, "TAPELINE_FAILPOINTS": "build_decided=1"},
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        assert runs(tmp_path)  # the live one does not notice
        (inbox / "two.csv").write_text("id,shop,money\n4,north,2.00\n5,south,6.00\n")
        wait_for(lambda: batch(tmp_path) == 2)
        done = command_line.tapeline(tmp_path, "apply", "--json")
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert (facts["generation"], facts["batch"], facts["stopped"]) == (2, 3, True)
        assert running.wait(60) == 0
    finally:
        running.kill()
    said = command_line.tapeline(tmp_path, "report", "by_shop", "--json")
    money = {row["shop"]: Decimal(str(row["money"])) for row in json.loads(said.stdout)}
    assert money == {"north": Decimal("10.50"), "south": Decimal("10.00")}
    assert command_line.tapeline(tmp_path, "audit", "--full").returncode == 0
    listed = command_line.tapeline(tmp_path, "generations", "--json")
    assert [row["state"] for row in json.loads(listed.stdout)] == ["earlier", "standing"]


def status(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command_line.tapeline(project, "status", "--json").stdout)
    return found


def runs(project: Path) -> bool:
    return bool(status(project).get("running"))


def batch(project: Path) -> int:
    return int(status(project).get("batch") or 0)


def wait_for(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(1)
