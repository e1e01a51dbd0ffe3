"""Where topics go on: published parts and accepted gaps, in the order in which they came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tapeline.books.gaps import Gap, accept_gap, gaps_of
from tapeline.books.operator import OperatorTape
from tapeline.intake.kafka.lag import Lag
from tapeline.intake.kafka.next_offsets import NextOffsets

NOW = datetime(2026, 11, 13, 10, 0, tzinfo=UTC)


def part(delivery: int, last: int, identity: str = "c/t") -> dict[str, Any]:
    return {"delivery": delivery, "name": "t/0", "last_line": last, "identity": identity}


def gap(behind: int, goes_on: int, identity: str = "c/t") -> Gap:
    return Gap("raw", "t", 0, "KAFKA_DATA_LOSS", 0, 0, goes_on, identity, behind)


def reached(*came: dict[str, Any], gaps: tuple[Gap, ...] = ()) -> tuple[int, str]:
    found = NextOffsets(gaps)
    for one in came:
        found.note(one)
    found.pass_gaps()
    return found.next["t/0"], found.identity["t/0"]


def test_a_gap_counts_where_it_was_found() -> None:
    assert reached(part(1, 9), gaps=(gap(1, 15),)) == (15, "c/t")
    assert reached(part(1, 9), part(2, 19), gaps=(gap(1, 15),)) == (20, "c/t")
    assert reached(part(1, 9), part(2, 19), gaps=(gap(2, 30), gap(1, 15))) == (30, "c/t")


def test_a_partition_may_go_back_behind_a_gap_and_only_there() -> None:
    assert reached(part(1, 99), gaps=(gap(1, 50),)) == (50, "c/t")
    assert reached(part(1, 99), part(2, 54), gaps=(gap(1, 50),)) == (55, "c/t")
    assert reached(part(1, 9), part(2, 19), part(1, 9), part(2, 19)) == (20, "c/t")


def test_another_topic_begins_where_its_gap_says() -> None:
    assert reached(part(1, 9), gaps=(gap(1, 0, "c/new"),)) == (0, "c/new")
    assert reached(part(1, 9), part(2, 4, "c/new"), gaps=(gap(1, 0, "c/new"),)) == (5, "c/new")


def test_gaps_are_kept_as_they_were_accepted(tmp_path: Any) -> None:
    tape = OperatorTape(tmp_path / "operator")
    assert gaps_of(tape.folder) == []
    accept_gap(tape, gap(1, 15), "ana", NOW)
    accept_gap(tape, gap(2, 30), "ana", NOW)
    assert [(one.goes_on, one.who, one.at) for one in gaps_of(tape.folder, "raw")] == [
        (15, "ana", NOW),
        (30, "ana", NOW),
    ]
    assert gaps_of(tape.folder, "other") == []


def test_what_moves_is_not_late_and_what_stands_is() -> None:
    lag = Lag()
    for second, offset in ((0, 10), (10, 20), (20, 20)):
        lag.leave({"t/0": (5, offset)}, NOW + timedelta(seconds=second))
    standing = lag.partitions(0, NOW + timedelta(seconds=30))["t/0"]
    assert (standing.records, standing.seconds) == (5, 20.0)
