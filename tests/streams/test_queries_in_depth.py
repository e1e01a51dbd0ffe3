"""Queries as sources: real kills, a real broker, joins of streams and state in Python."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tapeline import Pipeline, Query, Stream
from tapeline.broker import Broker
from tests.support.command_line import ENVIRONMENT, tapeline
from tests.support.kafka import produced
from tests.support.queries import Inbox, counts, deployed, words


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


@pytest.mark.slow
def test_a_topic_is_read_by_sparks_own_reader(
    spark: SparkSession, tmp_path: Path, broker: Broker, topic: Callable[[int], str]
) -> None:
    name = topic(2)

    def messages(session: SparkSession) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": name,
            "startingOffsets": "earliest",
        }
        read = session.readStream.format("kafka").options(**options).load()
        return read.select(F.col("value").cast("string").alias("word"), "partition", "offset")

    run = deployed(words(Query(messages, needs=["kafka"])), tmp_path)
    produced(broker, name, ["a", "b", "a"])
    run.run_once(spark)
    produced(broker, name, ["b", "c"])
    run.run_once(spark)
    assert counts(run) == Counter("abacb")


@pytest.mark.slow
def test_an_outer_join_of_two_streams_gives_what_found_no_match_when_time_is_up(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    clicks = Inbox(tmp_path / "clicks")
    pipeline = Pipeline("answers")

    def answers(session: SparkSession) -> DataFrame:
        shown = inbox.read(session, "id string, shown timestamp").withWatermark("shown", "1 minute")
        read = clicks.read(session, "of string, clicked timestamp")
        bound = "id = of and clicked between shown and shown + interval 10 minutes"
        return shown.join(read.withWatermark("clicked", "1 minute"), F.expr(bound), "left")

    pipeline.source("raw_answers", Query(answers))

    @pipeline.table(key="id")
    def answered(raw_answers: Stream) -> DataFrame:
        return raw_answers

    run = deployed(pipeline, tmp_path)
    for number, minute in enumerate(("10:00", "10:01", "12:00", "12:30")):
        inbox.put({"id": f"i{number}", "shown": f"2026-11-13T{minute}:00Z"})
    clicks.put({"of": "i1", "clicked": "2026-11-13T10:05:00Z"})
    clicks.put({"of": "none", "clicked": "2026-11-13T12:30:00Z"})
    run.run_once(spark)
    found = {
        row["id"]: row["clicked"] and f"{row['clicked']:%H:%M}" for row in run.read("answered")
    }
    assert found == {"i0": None, "i1": "10:05", "i2": None}


KILLED = """
from pyspark.sql import DataFrame, SparkSession, functions as F
from tapeline import Pipeline, Query, Stream

pipeline = Pipeline("words")


def split(session: SparkSession) -> DataFrame:
    lines = session.readStream.schema("line string").option("maxFilesPerTrigger", 1).json("inbox")
    return lines.select(F.explode(F.split("line", " ")).alias("word"))


pipeline.source("raw_words", Query(split))


@pipeline.table
def words(raw_words: Stream) -> DataFrame:
    return raw_words


@pipeline.summary(key="word")
def word_counts(words: Stream) -> DataFrame:
    return words.groupBy("word").agg(F.count("*").alias("count"))
"""


@pytest.mark.slow
def test_a_kill_between_the_tape_and_sparks_commit_doubles_nothing(
    tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline.py").write_text(KILLED)
    inbox.put({"line": "a b a"})
    inbox.put({"line": "c d"})
    monkeypatch.setitem(ENVIRONMENT, "TAPELINE_FAILPOINTS", "tape_committed=2")
    assert tapeline(tmp_path, "run", "--once").returncode == -signal.SIGKILL
    monkeypatch.delitem(ENVIRONMENT, "TAPELINE_FAILPOINTS")
    inbox.put({"line": "a e"})
    run = tapeline(tmp_path, "run", "--once")
    assert run.returncode == 0, run.stderr
    assert "leaked" not in run.stderr
    said = tapeline(tmp_path, "report", "word_counts", "--json")
    rows = json.loads(said.stdout)
    rows = rows["rows"] if isinstance(rows, dict) else rows
    assert {row["word"]: int(row["count"]) for row in rows} == Counter("abacdae")
    audit = tapeline(tmp_path, "audit")
    assert audit.returncode == 0
    assert "counted, not proved" in audit.stdout


@pytest.mark.slow
def test_state_in_python_is_kept_by_transform_with_state(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    from pyspark.sql.streaming import StatefulProcessor

    class Running(StatefulProcessor):
        """How many rows of a key have come so far."""

        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("seen", "seen bigint")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            before = self.state.get()[0] if self.state.exists() else 0
            seen = before + sum(1 for _ in rows)
            self.state.update((seen,))
            yield Row(word=key[0], count=seen)

        def close(self) -> None:
            return

    def running(session: SparkSession) -> DataFrame:
        grouped = inbox.read(session, "word string").groupBy("word")
        return grouped.transformWithState(
            Running(), outputStructType="word string, count bigint", outputMode="Update",
            timeMode="None",
        )  # fmt: skip

    pipeline = Pipeline("running")
    pipeline.source("raw_counts", Query(running, mode="update"))

    @pipeline.table(key="word", sequence_by="_query_batch")
    def word_counts(raw_counts: Stream) -> DataFrame:
        return raw_counts

    run = deployed(pipeline, tmp_path)
    inbox.put({"word": "a"}, {"word": "b"})
    inbox.put({"word": "a"}, {"word": "a"})
    run.run_once(spark)
    assert counts(run) == {"a": 3, "b": 1}
