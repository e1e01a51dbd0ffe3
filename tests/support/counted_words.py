"""A small pipeline that counts the words of dropped files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_fail
from tapeline.settings import IntakeSettings, Settings
from tapeline.testing import Books, Plan, plan_of


def counted() -> Plan:
    pipeline = Pipeline("counted")
    pipeline.source("raw", Files("landing/", schema="word string, size int"))

    @pipeline.table
    @expect_or_fail("size is not forbidden", "size is null or size <> 13")
    def words(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key="word")
    def counts(words: Stream) -> DataFrame:
        return words.groupBy("word").agg(F.count("*").alias("n"))

    return plan_of(pipeline)


def settings_for(folder: Path) -> Settings:
    (folder / "landing").mkdir(exist_ok=True)
    intake = IntakeSettings(settle_seconds=0.1, record_bytes=200)
    return Settings(project=folder, root=folder / "books", intake=intake)


def drop(folder: Path, name: str, *records: dict[str, Any]) -> None:
    hidden = folder / "landing" / f".{name}"
    hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
    hidden.rename(folder / "landing" / name)


def counts(books: Books) -> dict[str, int]:
    return {row["word"]: row["n"] for row in books.read("counts").to_pylist()}
