"""Structured Streaming queries as sources, on real Spark: what they give reaches the books once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tapeline import Pipeline, Query, Stream
from tapeline.settings import Settings
from tapeline.testing import Crash, Deployment, crash_at


class Inbox:
    """A folder of JSON lines that a query reads by Spark's own file source, a file a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._files = 0

    def put(self, *rows: dict[str, Any]) -> None:
        self._files += 1
        hidden = self.folder / ".being_written"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(self.folder / f"{self._files:04}.json")

    def read(self, session: SparkSession, schema: str) -> DataFrame:
        reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


def words(inbox: Inbox) -> Pipeline:
    """Lines become words in the query; the books count them."""

    def split(session: SparkSession) -> DataFrame:
        lines = inbox.read(session, "line string")
        return lines.select(F.explode(F.split("line", " ")).alias("word"))

    pipeline = Pipeline("words")
    pipeline.source("raw_words", Query(split))

    @pipeline.table
    def each_word(raw_words: Stream) -> DataFrame:
        return raw_words

    @pipeline.summary(key="word")
    def word_counts(each_word: Stream) -> DataFrame:
        return each_word.groupBy("word").agg(F.count("*").alias("count"))

    return pipeline


def counts(run: Deployment) -> dict[str, int]:
    return {row["word"]: row["count"] for row in run.read("word_counts")}


def deployed(pipeline: Pipeline, tmp_path: Path) -> Deployment:
    return Deployment(pipeline, Settings(project=tmp_path, root=str(tmp_path / "books")))


@pytest.mark.parametrize("point", [None, "query_batch", "tape_decided", "tape_committed"])
def test_words_of_a_query_are_counted_once(spark, tmp_path, inbox, point):
    run = deployed(words(inbox), tmp_path)
    inbox.put({"line": "a b a"})
    inbox.put({"line": "c"}, {"line": "a d"})
    with crash_at(point):
        try:
            run.run_once(spark)
        except Crash:
            assert point is not None
    inbox.put({"line": "b z"})
    run.run_once(spark)
    assert counts(run) == Counter("abacadbz")
    assert run.unbalanced() == []
