"""Books made by earlier versions start, report, audit and go on; tests/fixtures/books has them."""

from __future__ import annotations

import json
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, OperationError, Pipeline, Stream, expect
from tapeline.books import Books
from tapeline.books.audit import audit
from tapeline.books.meanings import STAMPS
from tapeline.books.revisions import why
from tapeline.broker import Broker
from tapeline.flow.steps import Steps
from tapeline.operate.runner import Runner
from tapeline.plan import Plan, load_pipeline, resolve
from tapeline.plan.fingerprint import version_of
from tapeline.settings import KafkaSettings, Settings
from tapeline.spark import compile as steps_module
from tapeline.spark.compile import prepare
from tapeline.trades import oracle

ARCHIVES = Path(__file__).parents[1] / "fixtures" / "books"
# The fingerprints of the fixtures' steps. They change only with VERSION in plan/fingerprint.py, and
# then books that carry them must be taken over, as those of version 1 are.
KNOWN = {
    "trades": "2:80620c786dbb1684e429bf8e2814b18f",
    "enriched_trades": "2:31ee8405cbbc6239862704fff5974cf6",
    "trade_summary": "2:efa06c35f8bb11cc3f3905bea317cc25",
    "settlement_due": "2:c6fe7bc12a68fba4ecf4f35f1446be1d",
    "sales": "2:14dab3138740cd29b73b31f9020b8df6",
    "sold_items": "2:d617488e04b4cab50e62ed7bed23a82b",
    "hours": "2:1b863fd27cdd51a41e111fafa8917df7",
    "calls": "2:ebb237f333f8675d7092959217c44b4c",
    "countries": "2:a0ad776875a279babda5854f3e722feb",
}
Hours = dict[tuple[str, str], tuple[Decimal, int]]


class OldBooks:
    """An unpacked project with its pipeline and books."""

    def __init__(self, name: str, folder: Path, target: str = "pipeline.py") -> None:
        with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        self.project = folder / name
        self.settings = Settings(project=self.project, root=self.project / "tapeline-data")
        self.plan: Plan = resolve(load_pipeline(target, self.settings))
        self.home = self.settings.home(self.plan.name)
        self.books = Books(self.plan, self.home)

    def run(self, spark: Any) -> Steps:
        with Runner(self.plan, self.settings, session=spark) as runner:
            runner.run_once()
            return runner.flow.steps

    def deliver_next(self) -> None:
        for file in sorted((self.project / "next").iterdir()):
            file.rename(self.project / "landing" / file.name)

    def balances(self, full: bool = True) -> bool:
        return all(check.balances for check in audit(self.books, full=full))

    @property
    def fingerprints(self) -> dict[str, str]:
        """What the last batch says of the code that made it."""
        return self.books.cut().commit.fingerprints


def test_trades_go_on(tmp_path: Path, spark: Any) -> None:
    old = OldBooks("trades", tmp_path, "tapeline.trades")
    assert {version_of(one) for one in old.fingerprints.values()} == {1}
    before = old.books.read("trade_summary")
    assert old.balances()
    old.run(spark)
    assert old.books.read("trade_summary").equals(before)
    old.deliver_next()
    assert old.run(spark).fingerprints.items() <= KNOWN.items()
    assert {version_of(one) for one in old.fingerprints.values()} == {2}
    truth = oracle.read_truth(old.project / "truth.jsonl")
    expected = oracle.expect(truth, oracle.Reference.read(old.project / "reference"))
    names = ("total_buy", "total_sell", "fees", "trades")
    windows = {
        (r["window_start"], r["terminal"], r["currency"]): tuple(r[n] for n in names)
        for r in old.books.read("trade_summary").to_pylist()
    }
    assert windows == {k: tuple(getattr(w, n) for n in names) for k, w in expected.windows.items()}
    assert old.books.totals()["trades"].verdicts == dict(expected.trades)
    assert old.balances()


def sold(records: list[dict[str, Any]]) -> Hours:
    """By hour and item, of the latest version of each sale."""
    latest: dict[str, dict[str, Any]] = {}
    for one in records:
        if one["id"] not in latest or one["v"] > latest[one["id"]]["v"]:
            latest[one["id"]] = one
    found: dict[tuple[str, str], list[Decimal]] = defaultdict(list)
    for one in latest.values():
        wrong = any(Decimal(line["amount"]) <= 0 for line in one["items"])
        if one["event"] != "CANCEL" and one["shop"] != "test" and not wrong:
            for line in one["items"]:
                found[one["at"][11:13], line["item"]].append(Decimal(line["amount"]))
    return {key: (sum(amounts, Decimal(0)), len(amounts)) for key, amounts in found.items()}


def delivered(project: Path) -> Iterator[dict[str, Any]]:
    """The sales of all files of a project, those in its archive and those to come."""
    archive = project / "tapeline-data" / "sales" / "intake" / "raw_sales" / "archive"
    files = [*archive.rglob("*"), *(project / "landing").glob("*.jsonl")]
    for file in sorted((f for f in files if f.is_file()), key=lambda f: f.name):
        for line in file.read_text().splitlines():
            if line.startswith('{"id"'):
                yield json.loads(line)


def hours(old: OldBooks) -> Hours:
    return {
        (f"{r['hour']:%H}", r["item"]): (r["amount"], r["pieces"])
        for r in old.books.read("hours").to_pylist()
    }


def test_sales_with_explode_and_quarantine_go_on(tmp_path: Path, spark: Any) -> None:
    old = OldBooks("sales", tmp_path)
    first = sold(list(delivered(old.project)))
    assert len(first) == 5
    assert hours(old) == first
    assert old.balances()
    verdicts = old.books.totals()["sales"].verdicts
    assert verdicts == {"kept": 5, "applied": 1, "superseded": 2, "duplicate": 1, "dropped": 1,
                        "quarantined": 1}  # fmt: skip
    assert old.books.totals()["sold_items"].verdicts == {"kept": 4, "dismissed": 1}
    old.deliver_next()
    everything = sold(list(delivered(old.project)))
    assert old.run(spark).fingerprints.items() <= KNOWN.items()
    assert hours(old) == everything != first
    assert old.balances()
    (nine,) = [row for row in old.books.read("hours").to_pylist()
               if row["item"] == "tea" and row["hour"].hour == 9]  # fmt: skip
    key = [str(nine[name]) for name in ("hour", "shop", "item")]
    assert {one.cause for one in why(old.books, "hours", key)} >= {"redrive", "correction"}


def test_books_that_were_killed_before_a_piece_was_on_the_tape_go_on(
    tmp_path: Path, spark: Any
) -> None:
    """Of nine sales three are on the tape, three are decided, and three wait beside it."""
    old = OldBooks("killed", tmp_path)
    assert len(list((old.home / "intake/raw_sales/accepted").iterdir())) == 2
    old.run(spark)
    cents = [Decimal(n) + Decimal("0.10") for n in range(1, 10)]
    assert hours(old) == {("09", "tea"): (sum(cents), 9), ("09", "cup"): (Decimal(45), 9)}
    assert old.books.totals()["sales"].verdicts == {"kept": 9}
    assert old.balances()
    assert not (old.home / "intake/raw_sales/accepted").exists()
    assert not (old.home / "checkpoints/raw_sales").exists()
    archive = old.home / "intake/raw_sales/archive"
    assert [path.name for path in archive.rglob("*") if path.suffix == "" and path.is_file()] == [
        f"{1:012}"
    ]
    old.run(spark)
    assert old.books.totals()["sales"].verdicts == {"kept": 9}


def called(numbers: range) -> dict[tuple[str, str], tuple[int, int]]:
    seconds: Counter[tuple[str, str]] = Counter()
    calls: Counter[tuple[str, str]] = Counter()
    for number in numbers:
        key = (("DE", "IN", "US")[number % 3], f"line-{number % 2}")
        seconds[key] += number % 11
        calls[key] += 1
    return {key: (seconds[key], calls[key]) for key in calls}


def countries(old: OldBooks) -> dict[tuple[str, str], tuple[int, int]]:
    rows = old.books.read("countries").to_pylist()
    return {(r["country"], r["line"]): (r["seconds"], r["calls"]) for r in rows}


def test_calls_from_a_topic_go_on(tmp_path: Path, spark: Any, broker: Broker) -> None:
    """`broker` is not used: it skips or fails this test where brokers cannot be started."""
    old = OldBooks("calls", tmp_path)
    assert countries(old) == called(range(60))
    assert old.balances()
    own = Broker(old.project / "broker")
    own.start()
    try:
        old.settings = replace(old.settings, kafka=KafkaSettings(brokers=own.bootstrap_servers))
        assert old.run(spark).fingerprints.items() <= KNOWN.items()
    finally:
        own.stop()
    assert countries(old) == called(range(75))
    assert old.books.totals()["calls"].verdicts == {"kept": 75, "duplicate": 10}
    assert old.balances()


@pytest.mark.parametrize("batch_first", [False, True])
def test_other_columns_are_refused(tmp_path: Path, spark: Any, batch_first: bool) -> None:
    """Before the first batch of this version and after it, and by every start."""
    old = OldBooks("sales", tmp_path)
    if batch_first:
        old.deliver_next()
        old.run(spark)
    file = old.project / "pipeline.py"
    right = file.read_text()
    file.write_text(right.replace('F.count("*").alias("pieces")', 'F.count("*").alias("parts")'))
    old.plan = resolve(load_pipeline("pipeline.py", old.settings))
    for _ in range(2):
        with pytest.raises(OperationError, match="hours changed since batch"):
            old.run(spark)
    file.write_text(right)
    old.plan = resolve(load_pipeline("pipeline.py", old.settings))
    old.run(spark)
    assert old.balances()


def test_the_first_start_settles_what_the_code_is(tmp_path: Path, spark: Any) -> None:
    """Old fingerprints say too little to compare by; from the first start on they say enough."""
    old = OldBooks("sales", tmp_path)
    old.run(spark)
    assert json.loads((old.home / STAMPS).read_text())["fingerprints"].items() <= KNOWN.items()
    file = old.project / "pipeline.py"
    file.write_text(file.read_text().replace("amount > 0", "amount > 1"))
    old.plan = resolve(load_pipeline("pipeline.py", old.settings))
    with pytest.raises(OperationError, match="sold_items changed since batch"):
        old.run(spark)


def test_another_key_is_refused(tmp_path: Path, spark: Any) -> None:
    old = OldBooks("calls", tmp_path)
    file = old.project / "pipeline.py"
    file.write_text(file.read_text().replace('(key="id")', ""))
    old.plan = resolve(load_pipeline("pipeline.py", old.settings))
    with pytest.raises(OperationError, match="calls changed since batch"):
        old.run(spark)


def wide(more: str = "1") -> Pipeline:
    """Forty columns: more than Spark prints of a plan by itself."""
    found = Pipeline("wide")
    found.source("raw", Files("landing/", schema="id string, n bigint"))

    @found.table(key="id")
    @expect("n is small", "n < 100")
    def rows(raw: Stream) -> DataFrame:
        columns = {f"c{i}": F.col("n") * i for i in range(40)}
        return raw.withColumns({**columns, "last": F.expr(f"n + {more}")})

    @found.summary(key="id")
    def sums(rows: Stream) -> DataFrame:
        return rows.groupBy("id").agg(F.sum("last").alias("last"))

    return found


def prints(spark: Any, pipeline: Pipeline) -> dict[str, str]:
    return prepare(spark, resolve(pipeline), {}).fingerprints


def test_a_change_in_the_last_of_many_columns_is_seen(spark: Any) -> None:
    one, other = prints(spark, wide("1")), prints(spark, wide("2"))
    assert one == prints(spark, wide("1"))
    assert one["rows"] != other["rows"]
    assert one["sums"] == other["sums"]  # its input has the same columns


def test_the_engines_own_decoding_is_not_in_a_fingerprint(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = prints(spark, wide())
    decode = steps_module.decode

    def another(*given: Any) -> DataFrame:
        return decode(*given).withColumn("one_more", F.lit(1)).drop("one_more")

    monkeypatch.setattr(steps_module, "decode", another)
    assert prints(spark, wide()) == before
