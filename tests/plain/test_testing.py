"""What `tapeline.testing` promises before any Spark starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tapeline.failpoints import hit
from tapeline.testing import CRASH_POINTS, Crash, crash_at

HEAVY = """
import sys
import tapeline.testing
sys.exit(", ".join(name for name in ("pyspark", "pytest", "py4j") if name in sys.modules))
"""


def test_importing_it_loads_neither_pyspark_nor_pytest() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAVY], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_happens_once_and_at_its_point_alone(point: str) -> None:
    with crash_at(point):
        for other in set(CRASH_POINTS) - {point}:
            hit(other)
        with pytest.raises(Crash, match=point):
            hit(point)
        hit(point)
    hit(point)


def test_another_error_may_be_raised_and_none_lets_all_pass() -> None:
    with crash_at("decided", OSError(28, "No space left")), pytest.raises(OSError, match="space"):
        hit("decided")
    with crash_at(None):
        hit("decided")


def test_after_the_block_nothing_fails_any_more() -> None:
    with crash_at("staged"):
        pass
    hit("staged")


def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'decide' is not a crash point\. Use .* tape_decided"):
        crash_at("decide").__enter__()
