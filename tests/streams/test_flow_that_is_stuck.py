"""A batch that cannot be published holds up nothing else, and everybody can see it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Memory, OperationError, Pipeline, Rows, Stream, expect_or_fail
from tapeline.books import Books
from tapeline.books.status import Status, read_status
from tapeline.books.stuck import Stuck
from tapeline.flow.ledger import Ledger
from tapeline.operate.doctor.work import work
from tapeline.operate.runner import Runner
from tapeline.plan import Plan, resolve
from tapeline.settings import IntakeSettings, Settings, SuperviseSettings
from tests.support.waiting import wait_for


def shop(sent: Memory) -> Plan:
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("landing/", schema="word string, size int"))

    @pipeline.table
    @expect_or_fail("size is not 13", "size <> 13")
    def words(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key="word")
    def counts(words: Stream) -> DataFrame:
        return words.groupBy("word").agg(F.count("*").alias("n"))

    @pipeline.sink(sent)
    def told(words: Rows) -> Rows:
        return words

    return resolve(pipeline)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "landing").mkdir()
    return Settings(
        project=tmp_path,
        root=tmp_path / "books",
        intake=IntakeSettings(settle_seconds=0.1),
        supervise=SuperviseSettings(attempts=50, max_wait_seconds=0.2),
    )


def drop(settings: Settings, name: str, **record: Any) -> None:
    hidden = settings.project / "landing" / f".{name}"
    hidden.write_text(json.dumps(record) + "\n")
    hidden.rename(settings.project / "landing" / name)


def stuck(settings: Settings) -> Stuck | None:
    return (read_status(settings.home("shop") / "status.json") or Status()).stuck


def flow_finding(plan: Plan, settings: Settings) -> tuple[str, str]:
    (found,) = [f for f in work(Books(plan, settings.home("shop"))) if f.what == "flow"]
    return found.state, found.words


def test_runs_that_end_with_an_error_say_since_when_until_one_succeeds(
    settings: Settings, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = shop(Memory())
    stage = Ledger.stage

    def no_room(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    drop(settings, "a", word="a", size=1)
    monkeypatch.setattr(Ledger, "stage", no_room)
    since = set()
    for attempts in (1, 2):
        with Runner(plan, settings, session=spark) as runner, pytest.raises(OSError, match="No sp"):
            runner.run_once()
        found = stuck(settings)
        assert found is not None
        assert (found.batch, found.tapes, found.attempts) == (1, {"raw": (1, 1)}, attempts)
        assert "DISK_FULL" in found.error
        since.add(found.since)
    assert len(since) == 1
    state, words = flow_finding(plan, settings)
    assert state == "error"
    assert "batch 1 (raw tape batch 1) failed 2 times, last error: " in words
    monkeypatch.setattr(Ledger, "stage", stage)
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
    assert stuck(settings) is None
    assert flow_finding(plan, settings) == ("ok", "not running, last batch 1")


def test_a_rule_that_says_fail_is_shown_while_intake_and_sinks_go_on(
    settings: Settings, spark: Any
) -> None:
    sent = Memory()
    plan = shop(sent)
    with Runner(plan, settings, session=spark) as runner:
        thread = threading.Thread(target=runner.run)
        thread.start()
        drop(settings, "a", word="a", size=1)
        wait_for(lambda: len(sent.rows) == 1)
        assert stuck(settings) is None
        drop(settings, "b", word="b", size=13)
        wait_for(lambda: stuck(settings) is not None)
        wait_for(lambda: (stuck(settings) or Stuck()).attempts > 2)
        drop(settings, "c", word="c", size=1)
        wait_for(lambda: runner.tapes["raw"].last_batch == 3)
        state, words = flow_finding(plan, settings)
        runner.stop()
        thread.join()
    assert isinstance(runner.failure, OperationError)
    assert state == "error"
    assert "has not advanced since" in words
    assert "fails 'size is not 13': raw part 2 at 0" in words
    found = read_status(settings.home("shop") / "status.json") or Status()
    assert found.sinks["told"].lag_batches == 0
