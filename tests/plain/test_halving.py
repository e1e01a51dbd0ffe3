"""Halving finds exactly the records that fail, keeps the others in order, and knows its limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from tapeline import OperationError
from tapeline.errors import TapelineBug
from tapeline.flow.culprits import TooMany, halve
from tapeline.flow.steps import StepFailedError
from tapeline.settings import Settings
from tapeline.spark.failures import IN_A_TASK, of_computation


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


LANG, SPARK = "java.lang.", "org.apache.spark."
RUNTIME = (f"{LANG}RuntimeException", f"{LANG}Exception", f"{LANG}Throwable")
IO = ("java.io.IOException", f"{LANG}Exception", f"{LANG}Throwable")
ERROR = (f"{LANG}VirtualMachineError", f"{LANG}Error", f"{LANG}Throwable")


def java_class(kinds: tuple[str, ...], interfaces: tuple[str, ...] = ()) -> Any:
    """A class as Java shows it: its name, its interfaces, and what it inherits from."""
    above = java_class(kinds[1:]) if kinds[1:] else None
    return SimpleNamespace(
        getName=lambda: kinds[0],
        getSuperclass=lambda: above,
        getInterfaces=lambda: [SimpleNamespace(getName=lambda one=one: one) for one in interfaces],
    )


def thrown(*kinds: str, state: str | None = None, cause: Any = None, frame: str = IN_A_TASK) -> Any:
    """An error of Java's, thrown in a task unless another place is named."""
    where, _, method = frame.rpartition(".")
    place = SimpleNamespace(getClassName=lambda: where, getMethodName=lambda: method)
    spoken = (f"{SPARK}SparkThrowable",) if state else ()
    return SimpleNamespace(
        _target_id="o1",
        getClass=lambda: java_class(kinds, spoken),
        getStackTrace=lambda: [place],
        getCause=lambda: cause,
        getSqlState=lambda: state,
    )


def in_python(error: Any) -> Py4JJavaError:
    """As Python sees what a task threw: inside Spark's own error."""
    return Py4JJavaError("no", thrown(f"{SPARK}SparkException", *RUNTIME[1:], cause=error))


@pytest.mark.parametrize(
    "error",
    [
        thrown(f"{LANG}ArithmeticException", *RUNTIME),
        thrown(*RUNTIME),
        thrown(f"{SPARK}SparkArithmeticException", *RUNTIME, state="22003"),
        thrown(f"{SPARK}SparkRuntimeException", *RUNTIME, state="P0001"),
        thrown(*RUNTIME, state="42000", cause=thrown(f"{LANG}ArithmeticException", *RUNTIME)),
    ],
    ids=["arithmetic", "runtime", "data", "raised by the user", "another state"],
)
def test_what_a_record_can_cause_is_of_the_computation(error: Any) -> None:
    assert of_computation(in_python(error))


@pytest.mark.parametrize(
    "error",
    [
        thrown("java.io.FileNotFoundException", *IO),
        thrown("java.io.UncheckedIOException", *RUNTIME),
        thrown(*RUNTIME, cause=thrown(*IO)),
        thrown(*RUNTIME, cause=thrown(*RUNTIME, cause=thrown("java.net.SocketException", *IO))),
        thrown(f"{LANG}OutOfMemoryError", *ERROR),
        thrown(*RUNTIME, cause=thrown(f"{LANG}OutOfMemoryError", *ERROR)),
        thrown(f"{SPARK}memory.SparkOutOfMemoryError", f"{LANG}OutOfMemoryError", *ERROR),
        thrown(f"{LANG}StackOverflowError", *ERROR),
        thrown(f"{LANG}IllegalStateException", *RUNTIME),
        thrown("java.util.concurrent.CancellationException", f"{LANG}IllegalStateException",
               *RUNTIME),
        thrown(f"{LANG}InterruptedException", *RUNTIME[1:]),
        *(thrown(*RUNTIME, state=state) for state in ("08000", "53200", "57014", "58030", "XXKDA")),
        thrown(f"{LANG}ArithmeticException", *RUNTIME, frame="java.lang.Thread.run"),
        None,
    ],
    ids=["a file", "unchecked", "a cause", "a deep cause", "memory", "memory below", "of Spark's",
         "the stack", "a broken promise", "cancelled", "interrupted", "network", "resources",
         "an operator", "the system", "Spark's mistake", "outside of a task", "a lost process"],
)  # fmt: skip
def test_what_no_record_causes_is_never_of_the_computation(error: Any) -> None:
    assert not of_computation(in_python(error))


def test_the_limit_is_a_setting() -> None:
    assert Settings().flow.culprits_per_batch == 100
