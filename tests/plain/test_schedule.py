"""Ticks: aligned, never overlapping, missed ones wait for the next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tapeline.operate.schedule import Ticks, after

QUARTER = timedelta(minutes=15)


def at(hour: int, minute: int) -> datetime:
    return datetime(2026, 11, 13, hour, minute, tzinfo=UTC)


def test_ticks_lie_on_whole_quarters_of_an_hour() -> None:
    assert after(at(10, 1), QUARTER) == at(10, 15)
    assert after(at(10, 15), QUARTER) == at(10, 30)


def test_work_that_ends_in_time_is_no_overrun() -> None:
    ticks = Ticks.starting(QUARTER, at(10, 1))
    assert not ticks.due(at(10, 14))
    assert ticks.due(at(10, 15))
    ticks.done(at(10, 16))
    assert (ticks.next, ticks.overruns) == (at(10, 30), 0)


def test_ticks_that_pass_during_work_are_counted_and_not_made_up_for() -> None:
    ticks = Ticks.starting(QUARTER, at(10, 1))
    ticks.done(at(10, 50))
    assert (ticks.next, ticks.overruns) == (at(11, 0), 2)
