"""A record on which the computation fails is found and quarantined; all others go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tapeline import Files, OperationError, Pipeline, Snapshot, Stream, expect_or_fail
from tapeline.books.audit import audit
from tapeline.books.operator import REDRIVE
from tapeline.books.quarantine import Actor, QuarantineFilter, decide, quarantined, show
from tapeline.flow.inputs import InputReader
from tapeline.spark.failures import of_computation
from tapeline.spark.prepared import Prepared
from tapeline.testing import Trial

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = "id string, v int, at timestamp, item string, a bigint, b bigint"
BIG = 2**62
OVERFLOW = "ARITHMETIC_OVERFLOW"


def shop(*rules: Callable[..., Any]) -> Pipeline:
    """sales multiplies, priced divides, also by a reference; both summaries compute besides."""
    found = Pipeline("shop")
    found.source("raw", Files("landing/", schema=SCHEMA))
    found.reference("rates", Files("rates.csv", format="csv", schema="item string, rate int"))

    def sales(raw: Stream) -> DataFrame:
        return raw.withColumn("product", F.col("a") * F.col("b"))

    for rule in rules:
        sales = rule(sales)
    said = {"sequence_by": "coalesce(v, 1)", "apply_as_deletes": "item = 'CANCEL'"}
    found.table(key="id", time="at", **said)(sales)

    @found.table
    def priced(sales: Stream, rates: Snapshot) -> DataFrame:
        joined = sales.join(rates, "item", "left")
        return joined.withColumn("price", F.expr("product div (b * coalesce(rate, 1))"))

    @found.summary(key="item")
    def totals(priced: Stream) -> DataFrame:
        return priced.groupBy("item").agg(
            F.sum(F.col("product") * 4).alias("four"), F.count("*").alias("n")
        )

    @found.summary(key="item")
    def early(sales: Stream) -> DataFrame:
        return sales.groupBy("item").agg(F.sum(F.col("a") + 1).alias("more"))

    return found


def sale(key: str, a: int = 2, b: int = 3, v: int = 1, **more: Any) -> dict[str, Any]:
    moment = "2026-11-13T10:00:00Z"
    return {"id": key, "v": v, "at": moment, "item": "tea", "a": a, "b": b} | more


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Trial]]:
    trials: list[Trial] = []

    def make(pipeline: Pipeline, name: str = "one", like: Trial | None = None) -> Trial:
        (tmp_path / "rates.csv").write_text("item,rate\ntea,1\nrum,0\n")
        trials.append(Trial(pipeline, tmp_path / name, tmp_path, like=like))
        return trials[-1]

    yield make
    for trial in trials:
        trial.close()


def balanced(trial: Trial) -> bool:
    return all(check.balances for check in audit(trial.books, full=True))


def reasons(trial: Trial) -> set[tuple[str, str, str]]:
    return {
        (row["table"], row["key"], reason)
        for row in quarantined(trial.books, QuarantineFilter())
        for reason in row["reasons"]
    }


def totals(trial: Trial) -> dict[str, tuple[int, int]]:
    return {row["item"]: (row["four"], row["n"]) for row in trial.read("totals")}


def redrive(trial: Trial, chosen: QuarantineFilter, record: bytes | None = None) -> None:
    rows = quarantined(trial.books, chosen)
    decide(trial.books, REDRIVE, rows, Actor(datetime.now(UTC), "ann", "a test"), record)
    trial.flow.advance()


def test_each_step_quarantines_the_records_on_which_it_fails(made: Callable[..., Trial]) -> None:
    trial = made(shop())
    trial.feed(
        raw=[
            sale("good"),
            sale("gone", a=None, item="CANCEL"),
            sale("table", a=BIG, b=4),  # a * b
            sale("second", b=0),  # product div b
            sale("summary", a=BIG, b=1),  # product * 4, read from priced
            sale("early", a=2**63 - 1, b=1),  # a + 1, read from sales
            sale("fine", a=5),
            b"not json",
        ]
    )
    fails = "fails on this record:"
    assert reasons(trial) == {
        ("sales", "table", f"sales() {fails} {OVERFLOW}"),
        ("priced", "second", f"priced() {fails} DIVIDE_BY_ZERO"),
        ("priced", "summary", f"totals() {fails} {OVERFLOW}"),
        ("sales", "early", f"early() {fails} {OVERFLOW}"),
        ("sales", None, "the record is not a JSON object"),
    }
    assert totals(trial) == {"tea": (4 * (6 + 15), 2)}
    assert trial.verdicts("sales") == {"kept": 4, "quarantined": 3, "applied": 1}
    assert trial.verdicts("priced") == {"kept": 2, "quarantined": 2}
    assert balanced(trial)
    # The error is beside the reason, and one reason stands for every record that it happens to.
    (row,) = [one for one in quarantined(trial.books, QuarantineFilter()) if one["key"] == "table"]
    found = show(trial.books, row["position"])["quarantined"][0]
    (detail,) = found["details"]
    assert detail.startswith("[ARITHMETIC_OVERFLOW]")
    assert "ansi" not in detail


def records_in_conflict() -> list[dict[str, Any]]:
    """Versions, repeats and conflicts around records on which a step fails."""
    top = 2**63 - 1
    return [
        sale("v", a=top, b=1),  # early() fails; a higher version comes
        sale("x", a=7),
        sale("v", v=2),
        sale("d", a=top, b=1),  # twice the same
        sale("d", a=top, b=1),
        sale("c", a=top, b=1),  # and then the same key and version with other content
        sale("c", a=3, b=1),
        sale("t", a=BIG, b=4, v=2),  # sales() fails on the higher version
        sale("t", a=1, b=1, v=1),
        sale("p", a=BIG, b=1),  # totals() fails, then it is corrected
        sale("p", a=2, b=1, v=2),
        sale("w", v=3),
        sale("w", a=top, b=1, v=1),  # lower than what stands, and early() would fail
        sale("y", a=top, b=1, v=1),  # cancelled
        sale("y", a=None, v=2, item="CANCEL"),
    ]


@pytest.mark.parametrize("cut", [(15,), (1,) * 15, (3, 12), (8, 2, 5), (2, 1, 4, 8)])
def test_how_the_records_are_cut_changes_no_verdict(
    made: Callable[..., Trial], cut: tuple[int, ...], alike: list[Trial]
) -> None:
    trial = made(shop(), like=alike[0] if alike else None)
    alike.append(trial)
    records = records_in_conflict()
    for size in cut:
        trial.put("raw", records[:size])
        records = records[size:]
        trial.flow.advance()
    found = {
        (row["_key"], row["_sequence"], row["a"]): row["_verdict"]
        for row in trial.books.register("sales").to_pylist()
    }
    top = 2**63 - 1
    assert found == {
        ("v", 1, top): "quarantined",
        ("x", 1, 7): "kept",
        ("v", 2, 2): "kept",
        ("d", 1, top): "quarantined",
        ("c", 1, top): "quarantined",
        ("c", 1, 3): "kept",
        ("t", 2, None): "quarantined",
        ("t", 1, 1): "kept",
        ("p", 1, BIG): "superseded",
        ("p", 2, 2): "kept",
        ("w", 3, 2): "kept",
        ("w", 1, top): "quarantined",
        ("y", 1, top): "quarantined",
        ("y", 2, None): "applied",
    }
    assert trial.verdicts("sales") == {"kept": 6, "quarantined": 7, "superseded": 1, "applied": 1}
    assert trial.verdicts("priced") == {"kept": 6}
    assert totals(trial) == {"tea": (4 * (21 + 6 + 3 + 1 + 2 + 6), 6)}
    assert balanced(trial)


@pytest.fixture(scope="module")
def alike() -> list[Trial]:
    """Trials whose prepared steps the next one takes."""
    return []


def test_a_record_is_redriven_when_its_cause_is_mended(
    made: Callable[..., Trial], tmp_path: Path
) -> None:
    trial = made(shop())
    trial.feed(raw=[sale("a"), sale("b", item="rum"), sale("c", a=BIG, b=4), sale("d", a=BIG, b=1)])
    assert trial.verdicts("priced") == {"kept": 1, "quarantined": 2}
    assert {key for _, key, _ in reasons(trial)} == {"b", "c", "d"}
    redrive(trial, QuarantineFilter(table="priced"))  # nothing was mended
    assert trial.verdicts("priced") == {"kept": 1, "quarantined": 2}
    (tmp_path / "rates.csv").write_text("item,rate\ntea,1\nrum,2\n")
    redrive(trial, QuarantineFilter(table="priced"))
    assert reasons(trial) == {
        ("sales", "c", f"sales() fails on this record: {OVERFLOW}"),
        ("priced", "d", f"totals() fails on this record: {OVERFLOW}"),
    }
    assert totals(trial) == {"tea": (24, 1), "rum": (24, 1)}
    redrive(trial, QuarantineFilter(table="sales"), json.dumps(sale("c", a=1, b=1)).encode())
    assert totals(trial) == {"tea": (28, 2), "rum": (24, 1)}
    trial.feed(raw=[sale("b", item="tea", v=2), sale("d", v=2)])
    assert totals(trial) == {"tea": (28 + 48, 4)}
    assert trial.verdicts("priced") == {"kept": 4}
    assert reasons(trial) == set()
    assert balanced(trial)


def test_a_record_that_explodes_is_quarantined_whole(made: Callable[..., Trial]) -> None:
    found = Pipeline("shop")
    found.source("raw", Files("landing/", schema="id string, a bigint, parts array<int>"))

    @found.table(key="id")
    def pieces(raw: Stream) -> DataFrame:
        return raw.withColumn("part", F.explode("parts"))

    @found.table
    def shares(pieces: Stream) -> DataFrame:
        return pieces.withColumn("share", F.col("a") * F.col("part"))

    @found.summary(key="id")
    def totals(shares: Stream) -> DataFrame:
        return shares.groupBy("id").agg(F.sum(F.col("share") * 2).alias("twice"))

    trial = made(found)
    some = {"parts": [1, 2, 4]}
    trial.feed(
        raw=[
            {"id": "a", "a": 1, **some},
            {"id": "b", "a": 2**61, **some},  # its third row
            {"id": "c", "a": 2**60, **some},  # its third row in the summary
            {"id": "d", "a": 3, **some},
        ]
    )
    assert {row["id"]: row["twice"] for row in trial.read("totals")} == {"a": 14, "d": 42}
    fails = f"fails on this record: {OVERFLOW}"
    assert reasons(trial) == {
        ("shares", "b", f"shares() {fails}"),
        ("shares", "c", f"totals() {fails}"),
    }
    assert trial.verdicts("shares") == {"kept": 2, "quarantined": 2}
    assert balanced(trial)


def test_a_batch_begun_ahead_finds_its_culprits_too(
    made: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = made(shop())
    begin, ahead = InputReader.begin, []

    def noting(self: InputReader, *given: Any) -> Any:
        ahead.append(threading.current_thread().name.startswith("books"))
        return begin(self, *given)

    monkeypatch.setattr(InputReader, "begin", noting)
    many = 24_000
    for first in (0, many):
        some = [sale(str(first + n)) for n in range(many)]
        some[17_000] = sale(f"culprit {first}", a=BIG, b=4)
        trial.put("raw", some)
    done = trial.flow.advance()
    assert [one.records for one in done] == [many, many]
    assert ahead == [False, True]
    assert {key for _, key, _ in reasons(trial)} == {"culprit 0", f"culprit {many}"}
    assert totals(trial) == {"tea": (24 * (2 * many - 2), 2 * many - 2)}
    assert balanced(trial)


def test_a_rule_that_says_fail_stops_the_flow_at_once(
    made: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = made(shop(expect_or_fail("b is not 13", "b <> 13")))
    run, runs = Prepared.run, []

    def counting(self: Prepared, rows: Any) -> Any:
        runs.append(rows.num_rows)
        return run(self, rows)

    monkeypatch.setattr(Prepared, "run", counting)
    with pytest.raises(OperationError, match="stops at a record that fails 'b is not 13'"):
        trial.feed(raw=[sale("a"), sale("b", b=13), sale("c"), sale("d")])
    assert runs == [4]
    assert trial.flow.published_batch == 0


def test_above_a_hundred_culprits_the_code_is_at_fault(made: Callable[..., Trial]) -> None:
    trial = made(shop())
    culprits = [sale(str(n), a=BIG, b=4) for n in range(101)]
    with pytest.raises(OperationError) as refused:
        trial.feed(raw=[sale("good"), *culprits])
    said = str(refused.value)
    assert f"sales() fails on more than 100 records: {OVERFLOW}" in said
    assert "The first is raw:1:1. The code is probably wrong" in said
    assert trial.flow.published_batch == 0
    # A person may know better: then all of them are quarantined.
    trial.flow.settings = replace(
        trial.settings, flow=replace(trial.settings.flow, culprits_per_batch=101)
    )
    trial.flow.advance()
    assert trial.verdicts("sales") == {"kept": 1, "quarantined": 101}
    assert balanced(trial)


def test_what_needs_no_step_is_no_culprit(made: Callable[..., Trial]) -> None:
    """A step that fails on nulls: unreadable records and deletions do not need it."""
    found = Pipeline("strict")
    found.source("raw", Files("landing/", schema=SCHEMA))
    said = {"sequence_by": "cast(item as int)", "apply_as_deletes": "b = 0"}

    @found.table(key="id", **said)
    def strict(raw: Stream) -> DataFrame:
        checked = F.when(F.col("a").isNull(), F.raise_error(F.lit("there is no a")))
        return raw.withColumn("checked", checked.otherwise(F.col("a")))

    trial = made(found)
    trial.flow.warm()
    garbage = [b"not json %d" % n for n in range(150)]
    more = [
        sale("a", item="1"),
        sale("a", a=None, b=0, item="2"),  # takes it out
        sale("b", a=None, item="1"),
        sale("c", item="x"),  # its version cannot be computed, so not even its key is known
        sale("d", item="1"),
    ]
    trial.feed(raw=[*garbage, *more])
    assert trial.verdicts("strict") == {
        "superseded": 1, "applied": 1, "kept": 1, "quarantined": 152
    }  # fmt: skip
    assert reasons(trial) == {
        ("strict", None, "the record is not a JSON object"),
        ("strict", "b", "strict() fails on this record: USER_RAISED_EXCEPTION"),
        ("strict", None, "strict() fails on this record: CAST_INVALID_INPUT"),
    }
    assert balanced(trial)


def test_javas_own_errors_count_if_a_task_threw_them(
    made: Callable[..., Trial], spark: SparkSession
) -> None:
    found = Pipeline("texts")
    found.source("raw", Files("landing/", schema=SCHEMA))

    @found.table
    def texts(raw: Stream) -> DataFrame:
        return raw.withColumn("text", F.expr("repeat(item, cast(b as int))"))

    trial = made(found)
    trial.feed(raw=[sale("a"), sale("b", b=2_000_000_000)])
    assert trial.verdicts("texts") == {"kept": 1, "quarantined": 1}
    assert reasons(trial) == {("texts", None, "texts() fails on this record: ArithmeticException")}
    jvm: Any = spark.sparkContext._jvm
    with pytest.raises(NumberFormatException) as outside:
        jvm.java.lang.Integer.parseInt("none")
    assert not of_computation(outside.value)
