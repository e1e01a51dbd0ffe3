"""The laws, hundreds of times: real flow, verdicts, books and audit, steps in plain Python.

tests/steps/test_plain_twins.py proves that the steps here make what Spark's steps make, and
tests/streams runs each law on Spark once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tapeline.books import TableWriter
from tapeline.flow.flow import Flow
from tapeline.flow.ledger import Ledger
from tapeline.testing import Trial, crash_at, unbalanced
from tests.support import corrected_orders, law_orders
from tests.support.plain_compute import plain_compiler

CHECKS = [HealthCheck.too_slow]
LAWS, ORDERS = law_orders.pipeline(), corrected_orders.pipeline()
COMPILED = {
    "laws": plain_compiler(LAWS, law_orders.TWINS),
    "orders": plain_compiler(ORDERS, corrected_orders.TWINS),
}
POINTS = ("computed", "staged", "decided", "added", "finished")


def some(examples: int) -> pytest.MarkDecorator:
    """So many examples in the default run, and hundreds in `make slow`."""
    hundreds = pytest.param(300, id="hundreds", marks=pytest.mark.slow)
    return pytest.mark.parametrize("examples", [pytest.param(examples, id="some"), hundreds])


SENT = st.lists(st.integers(0, 60), min_size=1, max_size=40)
EVENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=9)


@pytest.fixture(scope="module", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """No test here cuts the power: what the kernel has is there, so nothing waits for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


class Folder:
    """Trials of one example, in a folder of their own."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self.root = Path(tempfile.mkdtemp())
        self._open = ExitStack()

    def start(self) -> Trial:
        """A process that finds nothing but the books."""
        compiled = COMPILED[self.pipeline.name]
        found = Trial(self.pipeline, self.root, compile_steps=compiled)
        self._open.callback(found.close)
        return found

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        shutil.rmtree(self.root, ignore_errors=True)


def balances(trial: Trial) -> tuple[Any, Any, Counter[str]]:
    totals = {(r["quarter"], r["side"]): (r["amount"], r["n"]) for r in trial.read("totals")}
    fees = {r["side"]: r["fee"] for r in trial.read("fees")}
    return totals, fees, Counter(trial.verdicts("rows"))


def causes(trial: Trial) -> list[tuple[str, str]]:
    return sorted((row["id"], row["_cause"]) for row in trial.read("rows"))


@some(30)
def test_laws_1_and_2_batches_order_and_repeats_do_not_matter(examples: int) -> None:
    settings(max_examples=examples, deadline=None, suppress_health_check=CHECKS)(
        any_batches_and_repeats
    )()


@given(numbers=SENT, cuts=st.sets(st.integers(1, 39), max_size=3), again=st.booleans())
def any_batches_and_repeats(numbers: list[int], cuts: set[int], again: bool) -> None:
    sent = numbers + numbers[: len(numbers) // 2] if again else numbers
    bounds = [0, *sorted(c for c in cuts if c < len(sent)), len(sent)]
    with Folder(LAWS) as folder:
        trial = folder.start()
        for first, last in pairwise(bounds):
            trial.feed(raw=[law_orders.record(number) for number in sent[first:last]])
        assert balances(trial) == law_orders.expected(sent)
        assert unbalanced(trial.books) == []


@some(25)
def test_a_crash_at_any_point_loses_nothing_and_doubles_nothing(examples: int) -> None:
    settings(max_examples=examples, deadline=None, suppress_health_check=CHECKS)(any_crashes)()


@given(
    batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), min_size=1, max_size=4),
    crashes=st.lists(st.sampled_from(POINTS), min_size=1, max_size=4),
    restarts=st.lists(st.booleans(), min_size=4, max_size=4),
)
def any_crashes(batches: list[list[int]], crashes: list[str], restarts: list[bool]) -> None:
    """Each crash ends a batch somewhere; the same process or a new one goes on with it."""
    with Folder(LAWS) as folder:
        trial = folder.start()
        left, sent = list(crashes), []
        for numbers, restart in zip(batches, restarts, strict=False):
            sent += numbers
            trial.put("raw", [law_orders.record(number) for number in numbers])
            while left:
                with crash_at(left.pop(), OSError(28, "No space left on device")):
                    try:
                        trial.advance()
                    except OSError:
                        pass
                    else:
                        break
                if restart:
                    trial = folder.start()
            trial.advance()
            assert balances(trial) == law_orders.expected(sent)
        assert unbalanced(trial.books, full=True) == []


@some(10)
def test_lateness_does_not_depend_on_the_cut(examples: int) -> None:
    settings(max_examples=examples, deadline=None, suppress_health_check=CHECKS)(any_cut)()


@given(numbers=st.lists(st.integers(0, 60), min_size=2, max_size=12), size=st.integers(1, 11))
def any_cut(numbers: list[int], size: int) -> None:
    found = []
    for step in (size, len(numbers)):
        with Folder(LAWS) as folder:
            trial = folder.start()
            for first in range(0, len(numbers), step):
                trial.feed(raw=[law_orders.record(n) for n in numbers[first : first + step]])
            found.append(causes(trial))
    assert found[0] == found[1]


class Life(RuleBasedStateMachine):
    """Versions of a few records arrive in any order, are repeated, cut, crashed and restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Folder(ORDERS)
        self.trial = self.folder.start()
        self.waiting: list[tuple[int, int]] = []
        self.sent: list[tuple[int, int]] = []

    @rule(events=EVENTS)
    def arrive(self, events: list[tuple[int, int]]) -> None:
        self.waiting += events

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: Any) -> None:
        self.waiting.append(data.draw(st.sampled_from(self.sent)))

    @precondition(lambda self: self.waiting)
    @rule(crash=st.sampled_from([None, None, *POINTS]))
    def batch(self, crash: str | None) -> None:
        records = [corrected_orders.record(key, version) for key, version in self.waiting]
        self.trial.put("raw", records)
        self.sent += self.waiting
        self.waiting = []
        if crash is not None:
            failure = OSError(5, "Input/output error")
            with crash_at(crash, failure), pytest.raises(OSError, match="Input"):
                self.trial.advance()
        self.trial.advance()
        assert balances(self.trial) == corrected_orders.expected(self.sent)

    @precondition(lambda self: self.sent)
    @rule()
    def restart(self) -> None:
        """What was in memory is found again in the tables."""
        self.trial = self.folder.start()

    def teardown(self) -> None:
        with self.folder:
            if self.waiting:
                self.batch(None)
            assert unbalanced(self.trial.books, full=True) == []


@some(25)
def test_any_order_and_any_cut_of_a_history_gives_the_same_books(examples: int) -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=CHECKS,
        ),
    )


@pytest.mark.parametrize(
    ("part", "point"), [(Flow, "_stage"), (Flow, "_remember"), (Ledger, "finish")]
)
def test_a_batch_that_was_interrupted_is_finished_or_computed_again(
    tmp_path: Path, part: type, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(LAWS, tmp_path, compile_steps=COMPILED["laws"])
    trial.feed(raw=[law_orders.record(n) for n in (1, 2)])

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(part, point, fail)
        with pytest.raises(RuntimeError, match="the power went"):
            trial.feed(raw=[law_orders.record(n) for n in (5, 6, 1)])
    restarted = Trial(LAWS, tmp_path, compile_steps=COMPILED["laws"])
    restarted.advance()
    assert balances(restarted) == law_orders.expected([1, 2, 5, 6, 1])
    restarted.feed(raw=[law_orders.record(5), law_orders.record(9)])
    assert balances(restarted) == law_orders.expected([1, 2, 5, 6, 1, 5, 9])
    assert unbalanced(restarted.books) == []


@pytest.mark.parametrize("point", ["computed", "staged", "unsure", "decided", "added", "finished"])
def test_a_batch_that_failed_half_way_is_tried_again_by_the_same_process(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(LAWS, tmp_path, compile_steps=COMPILED["laws"])
    trial.feed(raw=[law_orders.record(n) for n in (1, 2)])
    trial.put("raw", [law_orders.record(n) for n in (5, 6, 1)])
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
    assert balances(trial) == law_orders.expected([1, 2, 5, 6, 1])
    # The books are read again only for what was decided and not yet remembered.
    assert (trial.flow.memories is memories) == (point not in ("unsure", "decided"))
    trial.feed(raw=[law_orders.record(5), law_orders.record(9)])
    assert balances(trial) == law_orders.expected([1, 2, 5, 6, 1, 5, 9])
    assert unbalanced(trial.books, full=True) == []
