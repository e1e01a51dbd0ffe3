"""Answers that were known before Tapeline existed."""

from __future__ import annotations

import csv
import gzip
import os
import shutil
import signal
import subprocess
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_quarantine
from tapeline.settings import Settings
from tapeline.testing import (
    CRASH_POINTS,
    Books,
    Crash,
    Deployment,
    Trial,
    crash_at,
    plan_of,
    table,
    unbalanced,
)
from tests.support import market_pipeline
from tests.support.command_line import COMMAND, ENVIRONMENT, tapeline
from tests.support.market_pipeline import market

pytestmark = pytest.mark.usefixtures("spark")


def course(width: str) -> Pipeline:
    """The trades of the course: no ids, so the key is the position."""
    pipeline = Pipeline("course")
    schema = "CreatedTime timestamp, Type string, Amount decimal(18,2), BrokerCode string"
    pipeline.source("raw_trades", Files("landing/", schema=schema))

    @pipeline.table(time="CreatedTime", late_after="1 minute")
    @expect_or_quarantine("Type is BUY or SELL", "Type in ('BUY', 'SELL')")
    def trades(raw_trades: Stream) -> DataFrame:
        return raw_trades

    @pipeline.summary(key="window_start", time="window_start", width=width)
    def trade_summary(trades: Stream) -> DataFrame:
        window_start = F.window("CreatedTime", width).start.alias("window_start")
        buy = F.when(F.col("Type") == "BUY", F.col("Amount")).otherwise(0)
        sell = F.when(F.col("Type") == "SELL", F.col("Amount")).otherwise(0)
        return trades.groupBy(window_start).agg(
            F.sum(buy).alias("total_buy"), F.sum(sell).alias("total_sell")
        )

    pipeline.view(
        "running_totals",
        "select window_start, total_buy, total_sell, "
        "sum(total_buy) over (order by window_start) as running_buy, "
        "sum(total_sell) over (order by window_start) as running_sell, "
        "sum(total_buy - total_sell) over (order by window_start) as net from trade_summary",
    )
    return pipeline


def by_window(rows: list[dict[str, Any]], *names: str) -> dict[str, tuple[int, ...]]:
    return {f"{row['window_start']:%H:%M}": tuple(int(row[n]) for n in names) for row in rows}


RUNNING = ("total_buy", "total_sell", "running_buy", "running_sell", "net")


def test_chapter_08_gives_the_windows_and_running_totals_of_the_course(
    tmp_path: Path, fixtures: Path
) -> None:
    trial = Trial(course("15 minutes"), tmp_path)
    text = (fixtures / "learningjournal" / "chapter08.txt").read_text()
    for line in filter(str.strip, text.splitlines()):
        trial.feed(raw_trades=[line])
    assert by_window(trial.read("running_totals"), *RUNNING) == {
        "10:00": (800, 0, 800, 0, 800),
        "10:15": (800, 400, 1600, 400, 1200),
        "10:30": (900, 0, 2500, 400, 2100),
        "10:45": (0, 600, 2500, 1000, 1500),
    }


def test_chapter_10_keeps_the_late_sell_that_a_watermark_drops(
    tmp_path: Path, fixtures: Path
) -> None:
    trial = Trial(course("15 minutes"), tmp_path)
    text = (fixtures / "learningjournal" / "chapter10.txt").read_text()
    first, second = (part.splitlines() for part in text.strip().split("\n\n", 1))
    trial.feed(raw_trades=first)
    trial.feed(raw_trades=[line for line in second if line.strip()])
    assert by_window(trial.read("trade_summary"), "total_buy", "total_sell") == {
        "10:00": (500, 300),
        "10:15": (800, 300),
        "10:30": (900, 0),
        "10:45": (0, 600),
    }


def test_a_trade_of_959_that_comes_with_the_next_half_hour_corrects_its_own_window(
    tmp_path: Path,
) -> None:
    trial = Trial(course("30 minutes"), tmp_path)
    trial.feed(
        raw_trades=table("""
            Type | Amount | CreatedTime
            SELL | 3400   | 2026-11-13 09:31
            BUY  | 3000   | 2026-11-13 09:58
        """)
    )
    assert by_window(trial.read("trade_summary"), "total_sell", "total_buy") == {
        "09:30": (3400, 3000)
    }
    trial.feed(
        raw_trades=table("""
            Type | Amount | CreatedTime
            SELL | 2700   | 2026-11-13 10:05
            BUY  | 2900   | 2026-11-13 10:20
            BUY  | 100    | 2026-11-13 09:59    # forty minutes late
        """)
    )
    assert by_window(trial.read("trade_summary"), "total_sell", "total_buy") == {
        "09:30": (3400, 3100),
        "10:00": (2700, 2900),
    }
    changes = [r for r in trial.books.journal("trade_summary").to_pylist() if r["_batch"] == 2]
    causes = {(f"{r['window_start']:%H:%M}", r["_cause"], int(r["total_buy"])) for r in changes}
    assert causes == {("10:00", "on_time", 2900), ("09:30", "late", 100)}
    running = by_window(trial.read("running_totals"), "running_buy", "running_sell")
    assert running == {"09:30": (3100, 3400), "10:00": (6000, 6100)}


NAMES = ("total_buy", "total_sell", "total_value", "total_qty", "trade_count")


def golden(path: Path, names: tuple[str, ...]) -> dict[datetime, list[Decimal]]:
    with path.open() as file:
        return {
            datetime.fromisoformat(row["window_start_utc"]): [Decimal(row[n]) for n in names]
            for row in csv.DictReader(file)
        }


def found(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[datetime, list[Decimal]]:
    return {row["window_start"]: [Decimal(row[n]) for n in names] for row in rows}


def through_the_drop_folder(tmp_path: Path, file: Path, spark: Any) -> list[dict[str, Any]]:
    """The whole way: drop folder, intake, Structured Streaming, tape, flow."""
    (tmp_path / "landing").mkdir()
    shutil.copy(file, tmp_path / "landing" / ".arriving")
    (tmp_path / "landing" / ".arriving").rename(tmp_path / "landing" / "trades.csv.gz")
    plan = plan_of(market())
    settings = Settings(project=tmp_path, root=tmp_path / "books")
    deployment = Deployment(plan, settings)
    deployment.run_once()
    rows: list[dict[str, Any]] = deployment.books.read("trade_summary").to_pylist()
    return rows


def test_gold_futures_of_lean_are_exact_to_the_last_digit(
    tmp_path: Path, fixtures: Path, spark: Any
) -> None:
    folder = fixtures / "lean_gold_ticks"
    names = ("total_value", "total_qty", "trade_count")  # no sides; quantities of zero count
    rows = through_the_drop_folder(tmp_path, folder / "trades.csv.gz", spark)
    assert found(rows, names) == golden(folder / "golden.csv", names)


def test_xrp_trades_of_freqtrade_are_exact_to_the_last_digit(
    tmp_path: Path, shared: Path, spark: Any
) -> None:
    folder = shared / "freqtrade_binance_xrp"
    rows = through_the_drop_folder(tmp_path, folder / "trades.csv.gz", spark)
    assert found(rows, NAMES) == golden(folder / "golden.csv", NAMES)


def test_binance_is_exact_although_its_trades_arrive_before_they_happen(
    tmp_path: Path, fixtures: Path
) -> None:
    folder = fixtures / "binance_live_capture"
    with gzip.open(folder / "trades.csv.gz", "rt") as file:
        header, *lines = file.read().splitlines()
    moment = [datetime(2024, 8, 9, tzinfo=UTC)]
    trial = Trial(market(), tmp_path, clock=lambda: moment[0])
    for start in range(0, len(lines), 10_000):
        batch = lines[start : start + 10_000]
        # The recorder's clock is more than a second behind the exchange's.
        moment[0] = datetime.fromisoformat(batch[-1].split(",")[6])
        assert datetime.fromisoformat(batch[-1].split(",")[1]) > moment[0]
        trial.feed(header, raw_trades=batch)
    assert trial.verdicts("trades") == {"kept": 28_734}
    assert found(trial.read("trade_summary"), NAMES) == golden(folder / "golden.csv", NAMES)


def test_binance_is_exact_in_its_order_of_arrival_cut_and_killed_at_random(
    tmp_path: Path, fixtures: Path
) -> None:
    folder = fixtures / "binance_live_capture"
    with gzip.open(folder / "trades.csv.gz", "rt") as file:
        header, *lines = file.read().splitlines()
    chance = Random(20240809)
    moment = [datetime(2024, 8, 9, tzinfo=UTC)]
    trial = Trial(market(), tmp_path, clock=lambda: moment[0])
    deaths = 0
    while lines:
        size = chance.randint(200, 5_000)
        batch, lines = lines[:size], lines[size:]
        moment[0] = datetime.fromisoformat(batch[-1].split(",")[6])
        try:
            with crash_at(chance.choice([*CRASH_POINTS, None])):
                trial.feed(header, raw_trades=batch)
        except Crash:
            deaths += 1
            trial = Trial(market(), tmp_path, clock=lambda: moment[0], like=trial)
            trial.advance()
    assert deaths > 3
    assert trial.verdicts("trades") == {"kept": 28_734}
    assert found(trial.read("trade_summary"), NAMES) == golden(folder / "golden.csv", NAMES)
    assert unbalanced(trial.books, full=True) == []


@pytest.mark.slow
def test_binance_is_exact_although_its_process_is_killed(tmp_path: Path, fixtures: Path) -> None:
    folder, chance = fixtures / "binance_live_capture", Random(20240810)
    with gzip.open(folder / "trades.csv.gz", "rt") as file:
        header, *lines = file.read().splitlines()
    (tmp_path / "landing").mkdir()
    shutil.copy(market_pipeline.__file__, tmp_path / "pipeline.py")
    number = 0

    def deliver(size: int) -> None:
        nonlocal lines, number
        while size > 0 and lines:
            some = chance.randint(200, 2_000)
            number, size = number + 1, size - some
            hidden = tmp_path / "landing" / f".{number:04}.csv"
            hidden.write_text("\n".join([header, *lines[:some]]) + "\n")
            hidden.rename(tmp_path / "landing" / f"{number:04}.csv")
            lines = lines[some:]

    for _ in range(3):
        deliver(len(lines) // 3)
        point = chance.choice(CRASH_POINTS)
        child = subprocess.Popen(
            [*COMMAND, "run", "pipeline.py"],
            cwd=tmp_path,
            env={**ENVIRONMENT, "TAPELINE_FAILPOINTS": f"{point}={chance.randint(1, 2)}"},
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            child.wait(25)
        except subprocess.TimeoutExpired:  # the point did not come: it dies where it is
            os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    deliver(len(lines))
    assert tapeline(tmp_path, "run", "pipeline.py", "--once").returncode == 0
    plan = plan_of(market())
    books = Books(plan, tmp_path / "tapeline-data" / "market")
    assert books.totals()["trades"].verdicts == {"kept": 28_734}
    rows = books.read("trade_summary").to_pylist()
    assert found(rows, NAMES) == golden(folder / "golden.csv", NAMES)
    assert unbalanced(books, full=True) == []
