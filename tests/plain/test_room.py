"""The limit of a batch follows its time, and a lag's end is foreseen from its pace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from tapeline.books.catchup import CatchUp
from tapeline.flow.batch_size import FLOOR_RECORDS, BatchSize
from tapeline.settings import load_settings

MOST = 200_000
START = datetime(2026, 11, 13, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize("seed", range(50))
def test_the_limit_comes_to_where_a_batch_takes_its_time(seed: int) -> None:
    chance = Random(seed)
    target = chance.uniform(0.5, 30)
    fixed = target * chance.uniform(0.0, 0.7)
    each = chance.uniform(1e-5, 1e-2)
    room = BatchSize(MOST, target)
    for _ in range(60):  # with a backlog every batch is full
        room.note(room.records, fixed + each * room.records)
        assert FLOOR_RECORDS <= room.records <= MOST
    ideal = min(MOST, max(FLOOR_RECORDS, (target - fixed) / each))
    seconds = fixed + each * room.records
    assert room.records == pytest.approx(ideal, rel=0.5)
    assert seconds <= target * 1.15 or room.records == FLOOR_RECORDS


@pytest.mark.parametrize("seed", range(50))
def test_whatever_is_measured_the_limit_stays_between_its_bounds(seed: int) -> None:
    chance = Random(seed)
    most = chance.choice([1, 500, 1_000, 200_000])
    room = BatchSize(most, chance.uniform(0.01, 60))
    for _ in range(200):
        before = room.records
        room.note(chance.randrange(0, 3 * most), chance.choice([0.0, 1e-9, 0.1, 10.0, 1e9]))
        assert min(FLOOR_RECORDS, most) <= room.records <= most
        assert before / 2 - 1 <= room.records <= before * 2 + 1


def test_quick_small_batches_do_not_raise_the_limit() -> None:
    room = BatchSize(MOST, 1.0)
    for _ in range(4):
        room.note(room.records, 2.0)
    lowered = room.records
    for _ in range(10):
        room.note(10, 0.01)
    assert room.records == lowered


def test_without_a_target_the_limit_is_the_hard_one(tmp_path: object) -> None:
    room = BatchSize(MOST, 0.0)
    room.note(MOST, 1_000.0)
    assert room.records == MOST


def test_a_target_of_zero_may_be_said(tmp_path_factory: pytest.TempPathFactory) -> None:
    project = tmp_path_factory.mktemp("project")
    (project / "tapeline.toml").write_text("[flow]\ntarget_batch_seconds = 5\n")
    assert load_settings(project, {}).flow.target_batch_seconds == 5
    said = {"TAPELINE_FLOW_TARGET_BATCH_SECONDS": "0"}
    assert load_settings(project, said).flow.target_batch_seconds == 0


def test_a_lag_that_shrinks_will_be_gone_at_its_pace() -> None:
    lag = CatchUp()
    found = [
        lag.seconds(records, START + timedelta(seconds=second))
        for second, records in ((0, 1_000), (10, 900), (20, 800), (30, 0), (40, 50), (50, 60))
    ]
    assert found == [None, 90.0, 80.0, 0.0, None, None]
