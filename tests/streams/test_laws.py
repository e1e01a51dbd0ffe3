"""The laws of design.md as properties. The oracle is plain Python over the generated records."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline.books import TableWriter
from tapeline.books.table_id import TableId
from tapeline.flow import identity
from tapeline.flow.ledger import Ledger
from tapeline.testing import Trial, unbalanced
from tests.support.law_orders import expected, pipeline, record

pytestmark = pytest.mark.usefixtures("spark")
REALLY = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


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


@pytest.mark.parametrize(("part", "point"), [(Ledger, "finish")])
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
