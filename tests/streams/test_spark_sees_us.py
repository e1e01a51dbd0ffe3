"""Spark's own tools see a run: listeners, the Streaming tab of its UI, descriptions of jobs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from tapeline.flow.progress import Published, SourceProgress
from tapeline.spark.reporting import QueryReport
from tapeline.testing import Deployment
from tests.support.counted_words import counted, drop, settings_for
from tests.support.waiting import wait_for


class Hears(StreamingQueryListener):
    """Keeps every event, as a user's own listener would."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's own names
        self.events.append(event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.events.append(event)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        self.events.append(event)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.events.append(event)


def _run_of(event: Any) -> str:
    return str(event.progress.runId if hasattr(event, "progress") else event.runId)


def test_a_listener_of_spark_hears_of_every_batch(tmp_path: Path, spark: SparkSession) -> None:
    hears = Hears()
    spark.streams.addListener(hears)
    deployment = Deployment(counted(), settings_for(tmp_path))
    try:
        for number in (1, 2):
            drop(tmp_path, f"{number}", *[{"word": "a"}] * number)
            with deployment.runner(spark) as runner:
                runner.run_once()
                query = runner.query
        wait_for(lambda: len(hears.events) == 6)
    finally:
        spark.streams.removeListener(hears)
    # Spark tells of a start at once and of the rest on a thread: the runs may overlap.
    runs = list(dict.fromkeys(_run_of(event) for event in hears.events))
    hears.events.sort(key=lambda event: runs.index(_run_of(event)))
    kinds = [type(event).__name__.removesuffix("Event") for event in hears.events]
    assert kinds == ["QueryStarted", "QueryProgress", "QueryTerminated"] * 2
    assert {str(hears.events[n].id) for n in (0, 2, 3, 5)} == {query.id}
    assert str(hears.events[0].runId) != str(hears.events[3].runId) == query.run_id
    progress = [hears.events[n].progress for n in (1, 4)]
    assert [(one.name, one.batchId, one.numInputRows) for one in progress] == [
        ("counted", 1, 1),
        ("counted", 2, 2),
    ]
    last = progress[1]
    parts = {"getBatch", "addBatch", "walCommit", "commitOffsets", "triggerExecution"}
    assert set(last.durationMs) == parts
    assert last.durationMs["triggerExecution"] == last.batchDuration > 0
    (source,) = last.sources
    assert source.description == "Tapeline tape of raw"
    assert (source.startOffset, source.endOffset, source.numInputRows) == ("1", "2", 2)
    assert last.processedRowsPerSecond > 0
    assert hears.events[5].exception is None


def test_a_run_that_fails_ends_its_query_with_the_reason(
    tmp_path: Path, spark: SparkSession
) -> None:
    hears = Hears()
    spark.streams.addListener(hears)
    settings = settings_for(tmp_path)
    drop(tmp_path, "1", {"word": "a", "size": 13})
    try:
        with (
            pytest.raises(Exception, match="forbidden"),
            Deployment(counted(), settings).runner(spark) as runner,
        ):
            runner.run_once()
        wait_for(lambda: len(hears.events) == 2)
    finally:
        spark.streams.removeListener(hears)
    assert "size is not forbidden" in hears.events[1].exception


def test_jobs_say_which_pipeline_step_and_batch_they_are_for(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    describe = type(spark.sparkContext).setJobDescription
    monkeypatch.setattr(
        type(spark.sparkContext),
        "setJobDescription",
        lambda context, text: (said.append(text), describe(context, text)),
    )
    deployment = Deployment(counted(), settings_for(tmp_path))
    for number in (1, 2):
        drop(tmp_path, f"{number}", {"word": "a"})
        deployment.run_once(spark)
    assert {one for one in said if not one.endswith("batch 0")} == {
        f"counted: {step}, batch {number}" for step in ("words", "counts") for number in (1, 2)
    }


def test_a_spark_without_these_classes_is_not_told_and_the_run_goes_on(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []
    monkeypatch.setattr(
        "tapeline.spark.internals.ListenerBus._post", lambda *_: spark.no_such_method()
    )
    report = QueryReport(spark, "x", tmp_path, words.append)
    report.started()
    report.ended(None)
    assert len(words) == 1
    assert "no_such_method" in words[0]


@pytest.mark.slow
def test_the_streaming_tab_of_sparks_ui_lists_the_run(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "pipeline.py").write_text(
        "from tapeline import Files, Pipeline, Stream\npipeline = Pipeline('shown')\n"
        "pipeline.source('raw', Files('landing/', schema='word string'))\n"
        "@pipeline.table\ndef words(raw: Stream):\n    return raw\n"
    )
    drop(tmp_path, "1", {"word": "a"})
    environment = {
        **os.environ,
        "TAPELINE_SPARK_UI": "true",
        "TAPELINE_JARS": str(Path(__file__).parents[2] / ".jars"),
    }
    said = tmp_path / "said"
    with said.open("w") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "tapeline", "run", "pipeline.py"],
            cwd=tmp_path, env=environment, stderr=errors,
        )  # fmt: skip
    try:
        wait_for(lambda: "UI is at" in said.read_text() or child.poll() is not None)
        address = re.findall(r"UI is at (\S+)", said.read_text())[0]
        assert address.startswith("http://127.0.0.1:")

        def page(path: str) -> str:
            with urllib.request.urlopen(f"{address}{path}", timeout=60) as answer:
                return str(answer.read().decode())

        status = tmp_path / "tapeline-data" / "shown" / "status.json"
        wait_for(lambda: status.exists() and json.loads(status.read_text()).get("batch") == 1)
        wait_for(lambda: "shown" in page("/StreamingQuery/"))
        run = re.search(r"statistics/?\?id=[\w-]+", page("/StreamingQuery/"))
        assert run is not None
        statistics = page(f"/StreamingQuery/{run[0]}")
        assert "Input Rate" in statistics
        assert "addBatch" in statistics
        assert "shown: words, batch 1" in page("/jobs/")
    finally:
        child.terminate()
        child.wait(timeout=120)


def test_telling_spark_costs_little(tmp_path: Path, spark: SparkSession) -> None:
    """The goal is 5 ms a batch; a busy machine is allowed more here. docs/performance.md has it."""
    report = QueryReport(spark, "x", tmp_path, pytest.fail)
    report.started()
    source = SourceProgress("raw", 1, 1, 1, 200)
    took = []
    for number in range(200):
        one = Published(number, datetime.now(UTC), 200, 0.05, (source,), {"compute": 40})
        begun = time.perf_counter()
        report.published(one)
        took.append(time.perf_counter() - begun)
    report.ended(None)
    median = sorted(took)[len(took) // 2]
    print(f"\nto tell Spark of a batch: median {median * 1000:.2f} ms")  # noqa: T201
    assert len(report.recent) == 100
