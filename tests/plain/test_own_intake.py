"""A source of one's own that can go on at a position: each record is on the tape exactly once."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline import DeclarationError, OperationError, Own, Polled, Source
from tapeline.books.layout import Layout
from tapeline.books.tape import Tape
from tapeline.formats.limits import IntakeLimits
from tapeline.intake.own import OwnIntake
from tapeline.testing import CRASH_POINTS, Crash, crash_at

RECORDS = [b"record %d" % number for number in range(40)]


class Numbers(Source):
    """A list that is read from a position; may fail when it is opened, polled or acknowledged."""

    path = "a list"

    def __init__(self) -> None:
        self.at = 0
        self.fails: set[str] = set()
        self.acknowledged: list[str] = []

    def _maybe(self, what: str) -> None:
        if what in self.fails:
            self.fails.discard(what)
            raise ConnectionError(f"{what} failed")

    def open(self, position: str) -> None:
        self._maybe("open")
        self.at = int(position or 0)

    def poll(self, most_records: int, seconds: float) -> Polled:
        self._maybe("poll")
        found = RECORDS[self.at : self.at + min(7, most_records)]
        self.at += len(found)
        return Polled(found, str(self.at))

    def acknowledge(self, position: str) -> None:
        self._maybe("acknowledge")
        self.acknowledged.append(position)

    def close(self) -> None:
        self.at = 10**9  # whoever goes on without opening reads nothing


def now() -> datetime:
    return datetime.now(UTC)


def opened(home: Path, source: Numbers, **limits: int) -> tuple[Tape, OwnIntake]:
    tape = Tape(Layout(home), "raw", now)
    intake = OwnIntake(source, tape, IntakeLimits(**limits), now)
    intake.recover()
    return tape, intake


def lines(tape: Tape) -> list[bytes]:
    batches = tape.since(0)
    return tape.read(batches)["raw"].to_pylist() if batches else []


FAILURES = st.sampled_from(
    ["open", "poll", "acknowledge", "tape_decided", "tape_added", "tape_committed", "restart", None]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(FAILURES, max_size=12), st.integers(1, 9))
def test_whatever_fails_each_record_is_on_the_tape_once(
    tmp_path_factory: pytest.TempPathFactory, failures: list[str | None], size: int
) -> None:
    home, source = tmp_path_factory.mktemp("own"), Numbers()
    tape, intake = opened(home, source, records_per_piece=size)
    for failure in failures:
        if failure in ("open", "poll", "acknowledge"):
            source.fails.add(failure)
        point = failure if failure in CRASH_POINTS else None
        died = failure == "restart"
        try:
            with crash_at(point), suppress(OperationError):
                intake.take()
        except Crash:
            died = True
        if died:
            tape, intake = opened(home, source, records_per_piece=size)
    source.fails.clear()
    for _ in range(60):
        intake.take()
    assert lines(tape) == RECORDS
    assert int(source.acknowledged[-1]) == len(RECORDS)


def test_a_failure_is_named_and_the_source_is_opened_again(tmp_path: Path) -> None:
    source = Numbers()
    source.fails.add("poll")
    tape, intake = opened(tmp_path, source)
    with pytest.raises(OperationError, match="SOURCE_DOWN: a list: ConnectionError: poll failed"):
        intake.take()
    assert intake.take() == 1
    assert lines(tape) == RECORDS[:7]


def test_a_record_beyond_the_limit_is_cut_and_says_so(tmp_path: Path) -> None:
    tape, intake = opened(tmp_path, Numbers(), record_bytes=7, bytes_per_piece=16)
    intake.take()
    rows = tape.read(tape.since(0)).to_pylist()
    assert [row["raw"] for row in rows] == [record[:7] for record in RECORDS[:7]]
    assert all("longer than the limit" in row["fault"] for row in rows)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(DeclarationError, match="object has no method 'open'"):
        Own(object(), format="text")  # type: ignore[arg-type]
