"""The laws of design.md as properties. The oracle is plain Python over the generated records."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_drop, expect_or_quarantine
from tapeline.books import TableWriter
from tapeline.books.table_id import TableId
from tapeline.flow import identity
from tapeline.flow.flow import Flow
from tapeline.flow.ledger import Ledger
from tapeline.testing import Trial, crash_at, unbalanced

pytestmark = pytest.mark.usefixtures("spark")
START = datetime(2026, 11, 13, 10, tzinfo=UTC)
REALLY = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def pipeline() -> Pipeline:
    found = Pipeline("laws")
    schema = "id string, at timestamp, side string, amount decimal(12,2)"
    found.source("raw", Files("landing/", schema=schema))

    @found.table(key="id", time="at", late_after="10 minutes")
    @expect_or_quarantine("amount is above zero", "amount > 0")
    @expect_or_drop("side is not TEST", "side <> 'TEST'")
    def rows(raw: Stream) -> DataFrame:
        return raw

    @found.table
    def large(rows: Stream) -> DataFrame:
        return rows.filter("amount >= 10").withColumn("fee", F.col("amount") * F.lit(2))

    @found.summary(key=["quarter", "side"], time="quarter", width="15 minutes")
    def totals(rows: Stream) -> DataFrame:
        quarter = F.window("at", "15 minutes").start.alias("quarter")
        sums = F.sum("amount").alias("amount"), F.count("*").alias("n")
        return rows.groupBy(quarter, "side").agg(*sums)

    @found.summary(key="side")
    def fees(large: Stream) -> DataFrame:
        return large.filter("side = 'BUY'").groupBy("side").agg(F.sum("fee").alias("fee"))

    return found


@pytest.fixture(scope="module")
def prepared(spark: Any) -> Iterator[Trial]:
    folder = Path(tempfile.mkdtemp())
    yield Trial(pipeline(), folder)
    shutil.rmtree(folder)


@pytest.fixture
def fresh(prepared: Trial) -> Iterator[Any]:
    folders: list[Path] = []

    def make(root: Path | None = None) -> Trial:
        folders.append(root or Path(tempfile.mkdtemp()))
        return Trial(pipeline(), folders[-1], like=prepared)

    yield make
    for folder in set(folders):
        shutil.rmtree(folder, ignore_errors=True)


def record(number: int) -> dict[str, str]:
    """A record whose content follows from its number: a repeat is an exact repeat."""
    amount = Decimal(number * 37 % 2000 - 20) / 100  # some are not above zero
    side = ("BUY", "SELL", "BUY", "TEST")[number % 4]
    moment = START + timedelta(minutes=number * 7 % 240)
    return {"id": f"r{number}", "at": moment.isoformat(), "side": side, "amount": str(amount)}


def expected(numbers: list[int]) -> tuple[Any, Any, Counter[str]]:
    """One static pass over what was sent, in plain Python."""
    verdicts: Counter[str] = Counter()
    totals: dict[Any, tuple[Decimal, int]] = {}
    fee, seen = Decimal(0), set()
    bought = False
    for number in numbers:
        sent = record(number)
        amount, side = Decimal(sent["amount"]), sent["side"]
        if amount <= 0:
            verdicts["quarantined"] += 1
        elif side == "TEST":
            verdicts["dropped"] += 1
        elif number in seen:
            verdicts["duplicate"] += 1
        else:
            seen.add(number)
            verdicts["kept"] += 1
            moment = datetime.fromisoformat(sent["at"])
            quarter = moment - timedelta(minutes=moment.minute % 15)
            before = totals.get((quarter, side), (Decimal(0), 0))
            totals[quarter, side] = (before[0] + amount, before[1] + 1)
            if side == "BUY" and amount >= 10:
                fee, bought = fee + 2 * amount, True
    return totals, ({"BUY": fee} if bought else {}), verdicts


def balances(trial: Trial) -> tuple[Any, Any, Counter[str]]:
    totals = {(r["quarter"], r["side"]): (r["amount"], r["n"]) for r in trial.read("totals")}
    fees = {r["side"]: r["fee"] for r in trial.read("fees")}
    return totals, fees, Counter(trial.verdicts("rows"))


SENT = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@REALLY
@given(numbers=SENT, cuts=st.sets(st.integers(1, 39), max_size=3), again=st.booleans())
def test_law_1_batches_order_and_repeats_do_not_matter(
    fresh: Any, numbers: list[int], cuts: set[int], again: bool
) -> None:
    trial = fresh()
    sent = numbers + numbers[: len(numbers) // 2] if again else numbers
    bounds = [0, *sorted(c for c in cuts if c < len(sent)), len(sent)]
    for first, last in pairwise(bounds):
        trial.feed(raw=[record(number) for number in sent[first:last]])
    assert balances(trial) == expected(sent)
    assert unbalanced(trial.books) == []  # law 2


def test_law_2_the_audit_names_the_table_and_batch_of_a_lost_row(fresh: Any) -> None:
    trial = fresh()
    for number in range(3):
        trial.feed(raw=[record(4 * number + 1), record(4 * number + 2)])
    assert unbalanced(trial.books) == []
    # A stranger doubles the rows of batch 2 behind the flow's back.
    book: TableWriter = trial.flow.ledger.books[TableId.register("rows")]
    rows = trial.books.register("rows").to_pylist()
    table = trial.books.register("rows").filter([row["_batch"] == 2 for row in rows])
    book.append(table, 2, "stranger", version=10**15)
    assert unbalanced(trial.books) == []  # only what is new
    wrong = unbalanced(trial.books, full=True)
    assert wrong[0].what == "rows: verdicts = records of raw"
    assert wrong[0].batch == 2


def test_law_3_writing_twice_equals_writing_once(fresh: Any) -> None:
    trial = fresh()
    trial.feed(raw=[record(n) for n in (1, 2, 5, 6)])
    before = balances(trial)
    decision = trial.flow.ledger.commits.last
    trial.flow.ledger.finish(decision)
    tape = trial.tapes["raw"]
    tape._finish(tape.since(0))
    assert tape.append() == []
    assert balances(trial) == before
    assert unbalanced(trial.books) == []


@pytest.mark.parametrize(
    ("part", "point"), [(Flow, "_stage"), (Flow, "_remember"), (Ledger, "finish")]
)
def test_a_batch_that_was_interrupted_is_finished_or_computed_again(
    fresh: Any, tmp_path: Path, part: type, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = fresh(tmp_path)
    trial.feed(raw=[record(n) for n in (1, 2)])

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(part, point, fail)
        with pytest.raises(RuntimeError, match="the power went"):
            trial.feed(raw=[record(n) for n in (5, 6, 1)])
    restarted = fresh(tmp_path)
    restarted.advance()
    assert balances(restarted) == expected([1, 2, 5, 6, 1])
    restarted.feed(raw=[record(5), record(9)])
    assert balances(restarted) == expected([1, 2, 5, 6, 1, 5, 9])
    assert unbalanced(restarted.books) == []


@pytest.mark.parametrize("point", ["computed", "staged", "unsure", "decided", "added", "finished"])
def test_a_batch_that_failed_half_way_is_tried_again_by_the_same_process(
    fresh: Any, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = fresh(tmp_path)
    trial.feed(raw=[record(n) for n in (1, 2)])
    trial.put("raw", [record(n) for n in (5, 6, 1)])
    add, memories = TableWriter.add, trial.flow.memories
    full = OSError(28, "No space left on device")
    unsure = [full] if point == "unsure" else []

    def add_then_fail(book: TableWriter, *words: Any) -> None:
        add(book, *words)
        if unsure:  # the first one is the row that decides: it is there
            raise unsure.pop()

    with monkeypatch.context() as patch, crash_at(None if unsure else point, full):
        patch.setattr(TableWriter, "add", add_then_fail)
        with pytest.raises(OSError, match="No space left"):
            trial.advance()
        trial.advance()
    assert balances(trial) == expected([1, 2, 5, 6, 1])
    # The books are read again only for what was decided and not yet remembered.
    assert (trial.flow.memories is memories) == (point not in ("unsure", "decided"))
    trial.feed(raw=[record(5), record(9)])
    assert balances(trial) == expected([1, 2, 5, 6, 1, 5, 9])
    assert unbalanced(trial.books, full=True) == []


def test_law_5_new_keys_open_no_file_and_repeats_only_those_of_their_batch(
    fresh: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trial = fresh(tmp_path)
    for number in range(6):
        trial.feed(raw=[record(4 * number + 1), record(4 * number + 2)])
    trial = fresh(tmp_path)  # started again: nothing is in memory but the index
    opened: list[tuple[int, int]] = []
    real = identity.register_table

    def spy(connection: Any, name: str, folder: Path, batches: tuple[int, int]) -> bool:
        opened.append(batches)
        return real(connection, name, folder, batches)

    monkeypatch.setattr(identity, "register_table", spy)
    trial.feed(raw=[record(41), record(42)])
    assert opened == []
    trial.feed(raw=[record(5), record(45)])
    assert opened == [(2, 2)]
    assert balances(trial)[2]["duplicate"] == 1


def test_lateness_does_not_depend_on_the_cut(fresh: Any) -> None:
    numbers = [1, 9, 2, 33, 6, 5, 10, 13]
    causes = []
    for size in (1, 3, len(numbers)):
        trial = fresh()
        for first in range(0, len(numbers), size):
            trial.feed(raw=[record(n) for n in numbers[first : first + size]])
        rows = sorted(trial.read("rows"), key=lambda row: row["id"])
        causes.append([(row["id"], row["_cause"]) for row in rows])
    assert causes[0] == causes[1] == causes[2]
    assert {cause for _, cause in causes[0]} == {"on_time", "late"}
