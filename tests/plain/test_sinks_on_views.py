"""Views leave the books, too: what a batch changed in one is sent once, with old and new values."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapeline import (
    Alerts,
    Changes,
    Console,
    DeclarationError,
    Each,
    Files,
    OperationError,
    Pipeline,
)
from tapeline.deliver import SinkWorkers, view_changes
from tapeline.deliver.active_alerts import alerts
from tapeline.plan import resolve
from tapeline.plan.views import refuse_wrong_views
from tapeline.supervisor import Supervisor
from tapeline.testing import Trial
from tests.support import corrected_orders
from tests.support.plain_compute import plain_compiler

Row = dict[str, Any]
RUNNING = """
    select quarter, side, amount, sum(amount) over (partition by side order by quarter) as running
    from totals"""
WITH_FEES = """
    select quarter, side, r.running, f.fee
    from totals join running r using (quarter, side) left join fees f using (side)"""
# Versions of keys, one list per batch: corrections move quarters that are long past.
BATCHES = [
    [(key, 1) for key in range(9)],
    [(3, 2), (20, 1)],
    [(1, 3), (3, 2)],
    [(0, 9), (2, 2), (21, 1)],
    [(3, 2)],  # a repeat changes nothing
]


def orders(**views: str) -> Pipeline:
    pipeline = corrected_orders.pipeline()
    for name, sql in views.items():
        pipeline.view(name, sql)
    return pipeline


def with_sinks(out: Path) -> Pipeline:
    pipeline = orders(running=RUNNING, with_fees=WITH_FEES)

    @pipeline.sink(Files(str(out), format="json"))
    def totals_out(running: Changes) -> Changes:
        return running

    @pipeline.sink(Console())
    def fees_out(with_fees: Changes) -> Changes:
        return with_fees

    @pipeline.alert(severity="critical")
    def high(running: Each) -> bool:
        """More than 40 so far."""
        return bool(running["running"] > 40)

    @pipeline.sink(Console())
    def pager(high: Alerts) -> Alerts:
        return high

    return pipeline


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, out: Path) -> Iterator[Trial]:
    pipeline = with_sinks(out)
    compiled = plain_compiler(pipeline, corrected_orders.TWINS)
    with Trial(pipeline, tmp_path_factory.mktemp("books"), compile_steps=compiled) as found:
        for batch in BATCHES:
            found.feed(raw=[corrected_orders.record(*one) for one in batch])
        yield found


def views_of(sent: list[tuple[int, int]]) -> tuple[dict[Any, Row], dict[Any, Row]]:
    """Both views after some records, in plain Python."""
    totals, fees, _ = corrected_orders.expected(sent)
    running: dict[Any, Row] = {}
    for quarter, side in sorted(totals):
        before = [one for at, one in totals.items() if at[1] == side and at[0] <= quarter]
        total = sum((amount for amount, _ in before), Decimal(0))
        running[quarter, side] = {"amount": totals[quarter, side][0], "running": total}
    with_fees = {key: {"running": one["running"], "fee": fees.get(key[1])}
                 for key, one in running.items()}  # fmt: skip
    return running, with_fees


def expected(view: int) -> list[tuple[int, Any, Row | None, Row | None]]:
    """What each batch changed: batch, key, before and after, in the order of the key."""
    found = []
    sent: list[tuple[int, int]] = []
    before: dict[Any, Row] = {}
    for number, batch in enumerate(BATCHES, start=1):
        sent += batch
        after = views_of(sent)[view]
        found += [(number, key, before.get(key), after.get(key))
                  for key in sorted(before.keys() | after.keys())
                  if before.get(key) != after.get(key)]  # fmt: skip
        before = after
    return found


def as_told(rows: list[Row]) -> list[tuple[int, Any, Row | None, Row | None]]:
    return [(r["_batch"], (r["quarter"], r["side"]), r["_old"], r["_new"]) for r in rows]


def test_a_sink_gets_the_rows_of_a_view_that_a_batch_changed(trial: Trial) -> None:
    changes = expected(0)
    later = [one for one in changes if one[2] and one[3] and one[2]["amount"] == one[3]["amount"]]
    assert later, "an earlier quarter moves the running totals after it"
    assert any(one[3] is None for one in changes), "a row disappears"
    assert as_told(trial.sent("totals_out")) == changes


def test_a_view_over_views_and_other_summaries_is_compared_as_a_whole(trial: Trial) -> None:
    assert as_told(trial.sent("fees_out")) == expected(1)


def test_a_batch_says_why_and_has_a_key_for_its_messages(trial: Trial) -> None:
    first, *_, last = trial.sent("totals_out")
    assert (first["_cause"], last["_cause"]) == ("late, on_time", "cancellation, correction")
    assert first["_key"] == f"{first['quarter'].isoformat()}/{first['side']}".replace("+00:00", "Z")


def delivering(trial: Trial, published: int) -> SinkWorkers:
    quiet = Supervisor("orders", trial.settings.supervise, lambda _: None, trial.clock)
    return SinkWorkers(trial.plan, trial.settings, quiet, lambda: published)


def test_each_change_is_delivered_once_across_restarts(trial: Trial, out: Path) -> None:
    for published in (2, 2, 5, 5):  # a process each
        delivering(trial, published).finish(threading.Event())
    files = sorted(out.glob("*.json"))
    assert [int(file.stem.rpartition("-")[2]) for file in files] == [1, 2, 3, 4]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    told = [(row["_batch"], row["_old"], row["_new"]) for row in lines]
    assert told == [(batch, _texts(old), _texts(new)) for batch, _, old, new in expected(0)]
    shutil.rmtree(out)


def _texts(row: Row | None) -> Row | None:
    return row and {name: f"{value:.2f}" for name, value in row.items()}


def test_an_alert_on_a_view_is_raised_and_closed_by_its_rows(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[int, str, Any]] = []
    for batch, key, old, new in expected(0):
        was, is_now = (bool(one and one["running"] > 40) for one in (old, new))
        if was != is_now:
            events.append((batch, "raised" if is_now else "closed", key))
    told = [(row["_batch"], row["event"], (row["what"]["quarter"], row["what"]["side"]))
            for row in trial.sent("pager")]  # fmt: skip
    assert told == events
    assert {event for _, event, _ in events} == {"raised", "closed"}
    known = alerts(trial.books)
    assert len(known) == sum(event == "raised" for _, event, _ in events)
    assert all(one["raised_at"] for one in known)
    # Only the last batches are compared: what was raised before them is known, but not when.
    monkeypatch.setattr("tapeline.deliver.active_alerts.BATCHES_OF_VIEWS", 2)
    active = {one["key"] for one in known if one["closed_at"] is None}
    again = alerts(trial.books)
    assert {one["key"] for one in again if one["closed_at"] is None} == active
    assert any(one["raised_at"] is None for one in again)


def test_a_view_that_is_too_large_or_has_a_key_twice_is_refused(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(view_changes, "ROWS_PER_VIEW", 3)
    with pytest.raises(OperationError, match=r"'running' has more than 3 rows.*narrow the view"):
        trial.sent("totals_out")
    monkeypatch.undo()
    pipeline = orders(twice=f"{RUNNING} union all {RUNNING}")

    @pipeline.sink(Console())
    def changes(twice: Changes) -> Changes:
        return twice

    compiled = plain_compiler(pipeline, corrected_orders.TWINS)
    with Trial(pipeline, tmp_path, compile_steps=compiled) as found:
        found.feed(raw=[corrected_orders.record(0, 1), corrected_orders.record(1, 1)])
        words = r"'twice' has 2 rows for quarter, side = 2026.* at batch 1.*group the view"
        with pytest.raises(OperationError, match=words):
            found.sent("changes")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select id, amount from rows", r"changes\(\) reads the view 'v', which reads no summary"),
        ("select *, now() as at from totals", r"view 'v' uses now\(\), and changes\(\) sends"),
        ("select *, current_date as d from totals", "view 'v' uses current_date"),
        ("select *, random() as n from totals", r"view 'v' uses random\(\)"),
    ],
)
def test_what_cannot_be_compared_is_refused_without_spark(sql: str, words: str) -> None:
    pipeline = orders(v=sql)

    @pipeline.sink(Console())
    def changes(v: Changes) -> Changes:
        return v

    with pytest.raises(DeclarationError, match=rf"test_sinks_on_views.py:\d+: .*{words}"):
        resolve(pipeline)


def test_a_view_without_a_key_is_refused_where_its_columns_are_known() -> None:
    pipeline = orders(v="select quarter, sum(amount) as amount from totals group by quarter")

    @pipeline.alert
    def high(v: Each) -> bool:
        """High."""
        return bool(v["amount"] > 1)

    steps = plain_compiler(pipeline, corrected_orders.TWINS)({})
    with pytest.raises(DeclarationError, match=r"quarter, amount.*quarter, side \(of totals\)"):
        refuse_wrong_views(pipeline, steps.shapes)


def test_a_view_shows_what_there_is_while_one_of_its_inputs_is_empty(tmp_path: Path) -> None:
    pipeline = orders(both="select t.side, t.n, f.fee from totals t left join fees f using (side)")
    compiled = plain_compiler(pipeline, corrected_orders.TWINS)
    with Trial(pipeline, tmp_path, compile_steps=compiled) as found:
        assert found.read("both") == []
        small = {**corrected_orders.record(0, 1), "amount": "1.00"}  # too small for a fee
        found.feed(raw=[small])
        assert [(row["n"], row["fee"]) for row in found.read("both")] == [(1, None)]
