"""Input for queries that are sources, and a pipeline that counts words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tapeline import Pipeline, Query, Stream
from tapeline.settings import Settings
from tapeline.testing import Deployment


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


def deployed(pipeline: Pipeline, tmp_path: Path, root: str = "books") -> Deployment:
    return Deployment(pipeline, Settings(project=tmp_path, root=str(tmp_path / root)))


def words(query: Query) -> Pipeline:
    """The query gives words; the books count them."""
    pipeline = Pipeline("words")
    pipeline.source("raw_words", query)

    @pipeline.table
    def each_word(raw_words: Stream) -> DataFrame:
        return raw_words

    @pipeline.summary(key="word")
    def word_counts(each_word: Stream) -> DataFrame:
        return each_word.groupBy("word").agg(F.count("*").alias("count"))

    return pipeline


def counts(run: Deployment) -> dict[str, int]:
    return {row["word"]: row["count"] for row in run.read("word_counts")}


def now() -> datetime:
    return datetime.now(UTC)
