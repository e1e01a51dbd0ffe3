"""A short drill: real kills, shuffled and repeated input, an independent oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapeline.operate.drill import Drill, DrillOptions


@pytest.mark.slow
@pytest.mark.spark
def test_books_are_right_after_kills_at_named_points_and_random_moments(tmp_path: Path) -> None:
    said: list[str] = []
    asked = DrillOptions("tapeline.trades", tmp_path / "drill", seed=5, trades=2_000, kills=2)
    done = Drill(asked, said.append).run()
    assert done.differences == [], (said, done.facts())
    assert len(done.kills) == 2
    assert done.records > 2_000  # repeats, corrections and cancellations on top
