"""Corrections, cancellations and late records: every number right, and every change explained."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tapeline import OperationError
from tapeline.testing import Trial, changes, table, unbalanced, why
from tests.support.corrected_orders import START, expected, pipeline, record

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def prepared(spark: Any) -> Iterator[Trial]:
    folder = Path(tempfile.mkdtemp())
    yield Trial(pipeline(), folder)
    shutil.rmtree(folder)


@pytest.fixture
def fresh(prepared: Trial) -> Iterator[Any]:
    folders: list[Path] = []

    def make(root: Path | None = None, now: datetime | None = None) -> Trial:
        folders.append(root or Path(tempfile.mkdtemp()))
        clock = (lambda: now) if now else (lambda: datetime.now(UTC))
        return Trial(pipeline(), folders[-1], like=prepared, clock=clock)

    yield make
    for folder in set(folders):
        shutil.rmtree(folder, ignore_errors=True)


def balances(trial: Trial) -> tuple[Any, Any, Counter[str]]:
    totals = {(r["quarter"], r["side"]): (r["amount"], r["n"]) for r in trial.read("totals")}
    fees = {r["side"]: r["fee"] for r in trial.read("fees")}
    return totals, fees, Counter(trial.verdicts("rows"))


class Life(RuleBasedStateMachine):
    """Events of a few records arrive in any order, are repeated, cut into batches and restarted."""

    def __init__(self, fresh: Any) -> None:
        super().__init__()
        self.fresh = fresh
        self.trial: Trial = fresh()
        self.waiting: list[tuple[int, int]] = []
        self.sent: list[tuple[int, int]] = []

    @rule(events=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=9))
    def arrive(self, events: list[tuple[int, int]]) -> None:
        self.waiting += events

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: Any) -> None:
        self.waiting.append(data.draw(st.sampled_from(self.sent)))

    @precondition(lambda self: self.waiting)
    @rule()
    def batch(self) -> None:
        self.trial.feed(raw=[record(key, version) for key, version in self.waiting])
        self.sent += self.waiting
        self.waiting = []
        assert balances(self.trial) == expected(self.sent)

    @precondition(lambda self: self.sent)
    @rule()
    def restart(self) -> None:
        """What was in memory is found again in the tables."""
        self.trial = self.fresh(self.trial.settings.project)

    def teardown(self) -> None:
        if self.waiting:
            self.batch()
        assert unbalanced(self.trial.books) == []


def test_any_order_and_any_cut_of_a_history_gives_the_same_books(fresh: Any) -> None:
    run_state_machine_as_test(
        lambda: Life(fresh),
        settings=settings(
            max_examples=2,
            stateful_step_count=12,
            deadline=None,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_a_trade_moves_between_windows_and_sides_and_every_change_is_explained(fresh: Any) -> None:
    trial = fresh()
    trial.feed(raw=table("""
        id | v | event   | at                   | side | amount
        t1 | 1 | NEW     | 2026-11-13T10:05:00Z | BUY  | 300
        t2 | 1 | NEW     | 2026-11-13T10:06:00Z | BUY  | 50
    """))  # fmt: skip
    trial.feed(raw=table("""
        id | v | event   | at                   | side | amount
        t1 | 2 | CORRECT | 2026-11-13T10:20:00Z | SELL | 310
    """))  # fmt: skip
    reported = trial.books.cut().at
    trial.feed(raw=table("""
        id | v | event   | at                   | side | amount
        t2 | 2 | CANCEL  |                      |      |
        t3 | 1 | NEW     | 2026-11-13T10:01:00Z | BUY  | 7
    """))  # fmt: skip
    quarter = START
    assert [(r["quarter"], r["side"], r["amount"], r["n"]) for r in trial.read("totals")] == [
        (quarter, "BUY", Decimal("7.00"), 1),
        (quarter + timedelta(minutes=15), "SELL", Decimal("310.00"), 1),
    ]
    assert trial.verdicts("rows") == {"kept": 2, "superseded": 2, "applied": 1}
    assert [r["id"] for r in trial.read("rows")] == ["t1", "t3"]
    # As it was reported before the cancellation.
    then = trial.books.read("totals", reported).to_pylist()
    assert [(r["side"], r["amount"]) for r in then] == [("BUY", 50), ("SELL", 310)]
    assert trial.books.read("totals", START).num_rows == 0
    revisions = why(trial.books, "totals", ["2026-11-13 10:00:00+00", "BUY"])
    assert [(r.batch, r.cause, r.change["amount"], r.value["amount"]) for r in revisions] == [
        (1, "on_time", 350, 350),
        (2, "correction", -300, 50),
        (3, "cancellation", -50, 0),
        (3, "late", 7, 7),
    ]
    assert [(one["record"], one["sign"], one["line"]) for one in revisions[1].records] == [
        ("t1", -1, 1)
    ]
    moved = changes(trial.books, reported, "totals")
    assert [(m["key"]["side"], m["old"]["amount"], m["new"]["amount"], m["causes"])
            for m in moved] == [("BUY", 50, 7, "cancellation, late")]  # fmt: skip


def test_a_cancellation_needs_its_key_and_sequence_and_stands_before_its_trade(fresh: Any) -> None:
    trial = fresh()
    cancel = {"id": "t1", "v": 2, "event": "CANCEL", "amount": "not a number", "at": "never"}
    trial.feed(raw=[cancel, {"id": "t2", "v": "x", "event": "CANCEL"}, {"v": 1, "event": "CANCEL"}])
    assert trial.verdicts("rows") == {"applied": 1, "quarantined": 2}
    unmatched = trial.books.unmatched("rows").to_pylist()
    assert [(r["id"], r["_verdict"]) for r in unmatched] == [("t1", "applied")]
    trial.feed(raw=[record(1, 1) | {"id": "t1"}])
    assert trial.verdicts("rows") == {"applied": 1, "quarantined": 2, "superseded": 1}
    assert trial.read("totals") == []
    assert trial.books.unmatched("rows").num_rows == 0


def test_a_correction_that_comes_first_applies_and_is_listed_with_its_amount(fresh: Any) -> None:
    trial = fresh()
    trial.feed(raw=table("""
        id | v | event   | at                   | side | amount
        t1 | 2 | CORRECT | 2026-11-13T10:05:00Z | BUY  | 310
    """))  # fmt: skip
    assert [r["amount"] for r in trial.read("totals")] == [310]
    assert [r["fee"] for r in trial.books.unmatched("large").to_pylist()] == [620]


def test_the_same_version_with_other_content_is_a_conflict(fresh: Any) -> None:
    trial = fresh()
    trial.feed(raw=table("""
        id | v | event   | at                   | side | amount
        t1 | 1 | NEW     | 2026-11-13T10:05:00Z | BUY  | 300
        t1 | 1 | NEW     | 2026-11-13T10:05:00Z | BUY  | 301
        t1 | 1 | NEW     | 2026-11-13T11:59:00Z | BUY  | 300
    """))  # fmt: skip
    assert trial.verdicts("rows") == {"kept": 1, "quarantined": 1, "duplicate": 1}
    (conflict,) = trial.quarantine("rows")
    assert conflict["_reasons"] == ["the same key and version was kept before with other content"]


def test_windows_carry_their_status(fresh: Any) -> None:
    trial = fresh()

    def feed(name: str, minute: int) -> dict[str, str]:
        at = (START + timedelta(minutes=minute)).isoformat()
        trial.feed(raw=[{"id": name, "at": at, "side": "BUY", "amount": "1"}])
        return {f"{r['quarter']:%H:%M}": r["_status"] for r in trial.read("totals")}

    assert feed("a", 5) == {"10:00": "open"}
    assert feed("b", 20) == {"10:00": "provisional", "10:15": "open"}
    # Final an hour after the window's end, by the highest event time.
    assert feed("c", 80) == {"10:00": "final", "10:15": "provisional", "11:15": "open"}
    assert feed("d", 6)["10:00"] == "restated"
    assert feed("e", 21)["10:15"] == "provisional"


def test_a_question_about_what_is_not_there_is_answered_clearly(fresh: Any) -> None:
    trial = fresh()
    trial.feed(raw=[record(1, 2)])
    with pytest.raises(OperationError, match=r"summary .* not found.*Did you mean 'totals'"):
        why(trial.books, "total", ["x", "BUY"])
    with pytest.raises(OperationError, match="Give 2 values, not 1"):
        why(trial.books, "totals", ["BUY"])
    with pytest.raises(OperationError, match="is not a timestamp"):
        why(trial.books, "totals", ["noon", "BUY"])
    assert why(trial.books, "totals", ["2026-11-13 23:00:00+00", "BUY"]) == []
