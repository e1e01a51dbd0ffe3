"""Halving finds exactly the records that fail, keeps the others in order, and knows its limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JNetworkError

from tapeline import OperationError
from tapeline.errors import TapelineBug
from tapeline.flow.culprits import TooMany, halve
from tapeline.flow.steps import StepFailedError
from tapeline.settings import Settings
from tapeline.spark.failures import of_computation


def broken(words: str) -> StepFailedError:
    """An error of the computation."""
    return StepFailedError("BROKEN", words)


def rows_of(records: list[int]) -> pa.Table:
    return pa.table({"record": pa.array(records, pa.int64()), "row": range(len(records))})


class Step:
    """Fails when one of some records is there; counts its runs."""

    def __init__(self, bad: set[int], error: Callable[[str], Exception] = broken) -> None:
        self.bad, self.error, self.runs = bad, error, 0

    def __call__(self, rows: pa.Table) -> pa.Table:
        self.runs += 1
        if self.bad & set(rows["record"].to_pylist()):
            raise self.error("no")
        return rows


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=60))
def test_the_culprits_are_found_and_the_others_stay_in_order(said: list[tuple[bool, int]]) -> None:
    records = [3 * n for n, (_, rows) in enumerate(said) for _ in range(rows)]
    bad = {3 * n for n, (culprit, _) in enumerate(said) if culprit}
    step, rows = Step(bad), rows_of(records)
    found, failed = halve("step", step, rows, np.array(records, dtype=np.int64), 100)
    assert set(failed) == bad
    expected = [row for row in rows.to_pylist() if row["record"] not in bad]
    assert found.to_pylist() == expected
    depth = math.ceil(math.log2(len(said))) if len(said) > 1 else 0
    assert step.runs <= 1 + len(bad) * (2 * depth + 2)


def test_above_the_limit_it_stops_soon() -> None:
    records = list(range(4096))
    step = Step(set(records))
    with pytest.raises(TooMany) as many:
        halve("step", step, rows_of(records), np.array(records, dtype=np.int64), 100)
    assert many.value.first == 0
    assert step.runs < 500


def test_an_error_that_does_not_repeat_makes_no_culprit() -> None:
    step = Step(set())
    tries = iter([True])

    def once(rows: pa.Table) -> pa.Table:
        if next(tries, False):
            raise broken("not again")
        return step(rows)

    found, failed = halve("step", once, rows_of([0]), np.array([0], dtype=np.int64), 100)
    assert (found.num_rows, failed) == (1, {})


@pytest.mark.parametrize(
    "error", [OSError, MemoryError, Py4JNetworkError, OperationError, TapelineBug, ValueError]
)
def test_other_errors_are_never_halved(error: type[Exception]) -> None:
    step = Step({2}, error)
    with pytest.raises(error):
        halve("step", step, rows_of([1, 2, 3]), np.array([1, 2, 3], dtype=np.int64), 100)
    assert step.runs == 1
    assert not of_computation(error("no"))


def test_the_limit_is_a_setting() -> None:
    assert Settings().flow.culprits_per_batch == 100
