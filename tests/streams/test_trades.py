"""The trades application on a simulated day, the whole way, against the independent oracle."""

from __future__ import annotations

import threading
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tapeline.plan import load_pipeline
from tapeline.settings import FlowSettings, HousekeepingSettings, IntakeSettings, Settings
from tapeline.testing import Books, Deployment, Trial, plan_of, unbalanced
from tapeline.trades import oracle
from tapeline.trades.delivery import write_files, write_truth
from tapeline.trades.lines import line
from tapeline.trades.reference import write_reference
from tapeline.trades.simulator import Day, simulate

DAY = Day(
    seed=11,
    date=date(2026, 11, 13),
    trades=3_000,
    broken=0.02,
    duplicates=0.03,
    corrections=0.05,
)


def settings_for(folder: Path) -> Settings:
    return Settings(
        project=folder,
        root=folder / "books",
        intake=IntakeSettings(settle_seconds=0.2, records_per_piece=400),
        flow=FlowSettings(bytes_per_tape_batch=40_000, records_per_batch=900),
        housekeeping=HousekeepingSettings(compact_every_batches=3, balances_every_batches=2),
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_reference(tmp_path / "reference", years=(2026, 2026))
    write_truth(simulate(DAY), tmp_path / "truth.jsonl")
    return tmp_path


def same_as_the_oracle(books: Books, project: Path) -> None:
    reference = oracle.Reference.read(project / "reference")
    expected = oracle.expect(oracle.read_truth(project / "truth.jsonl"), reference)
    totals = books.totals()
    assert totals["trades"].verdicts == dict(expected.trades)
    assert totals["enriched_trades"].verdicts == dict(expected.enriched_trades)
    names = ("total_buy", "total_sell", "fees", "trades")
    windows = {
        (r["window_start"], r["terminal"], r["currency"]): tuple(r[n] for n in names)
        for r in books.read("trade_summary").to_pylist()
    }
    assert windows == {k: tuple(getattr(w, n) for n in names) for k, w in expected.windows.items()}
    due = books.read("due").to_pylist()
    assert {(r["settlement_id"], r["currency"]): r["due"] for r in due} == dict(expected.due)
    assert unbalanced(books) == []


def test_a_day_in_files_gives_the_oracles_books_across_restarts(project: Path, spark: Any) -> None:
    settings = settings_for(project)
    plan = plan_of("tapeline.trades", settings)
    deployment = Deployment(plan, settings)
    books = deployment.books
    write_files(simulate(DAY), project / "later", lines_per_file=250)
    files = sorted((project / "later").iterdir())
    (project / "landing").mkdir()
    for part in (files[: len(files) // 2], files[len(files) // 2 :]):
        for file in part:
            file.rename(project / "landing" / file.name)
        with deployment.runner() as runner:
            done = runner.run_once()
        assert max(p.records for p in done) <= 900
    same_as_the_oracle(books, project)
    with deployment.runner() as runner:
        assert runner.run_once() == []  # nothing new: nothing is published
    same_as_the_oracle(books, project)
    archived = [p for p in (settings.home("trades") / "intake/raw_trades/archive").rglob("*")
                if p.is_file() and p.suffix != ".json"]  # fmt: skip
    assert len(archived) == len(files)


def test_a_live_run_publishes_what_is_dropped_while_it_runs(project: Path, spark: Any) -> None:
    settings = settings_for(project)
    plan = plan_of("tapeline.trades", settings)
    deployment = Deployment(plan, settings)
    books = deployment.books
    sent = list(simulate(DAY))
    with deployment.running():
        for first in range(0, len(sent), 600):
            write_files(sent[first : first + 600], project / f"from{first}", lines_per_file=600)
            for file in (project / f"from{first}").iterdir():
                file.rename(project / "landing" / f"{first}-{file.name}")
        _wait_for(lambda: _arrived(books) == len(sent))
        status = deployment.status()
    assert status.running
    assert status.failure is None
    same_as_the_oracle(books, project)


def test_spark_jobs_per_micro_batch_stay_within_the_budget(project: Path, spark: Any) -> None:
    trial = Trial(load_pipeline("tapeline.trades", Settings()), project)
    lines = [line(s) for s in simulate(Day(seed=3, date=DAY.date, trades=900, broken=0.0))]
    trial.feed(raw_trades=lines[:300])  # the first batch also broadcasts the references
    before = _jobs(spark)
    trial.feed(raw_trades=lines[300:600])
    # One each for trades, enriched_trades, trade_summary and settlement_due.
    assert _jobs(spark) - before == 4


def test_a_trade_is_corrected_then_cancelled(project: Path, spark: Any) -> None:
    trial = Trial(load_pipeline("tapeline.trades", Settings()), project)
    sent = next(s for s in simulate(DAY) if s.fate == "kept" and s.instrument)
    text = line(sent).decode()
    correction = text[:-1] + ', "version": 2, "event": "CORRECT", "fees": "77"}'
    cancel = f'{{"trade_id": "{sent.trade_id}", "version": 3, "event": "cancel"}}'
    trial.feed(raw_trades=[text])
    trial.feed(raw_trades=[correction])
    assert [row["fees"] for row in trial.read("trade_summary")] == [77]
    trial.feed(raw_trades=[cancel])
    assert trial.verdicts("trades") == {"superseded": 2, "applied": 1}
    assert trial.read("trade_summary") == []
    assert trial.read("due") == []


def _jobs(spark: Any) -> int:
    # By the highest number: Spark forgets old jobs.
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(None), default=0)


def _arrived(books: Books) -> int:
    return sum(books.cut().commit.total("trades").verdicts.values())


def _wait_for(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.1)
