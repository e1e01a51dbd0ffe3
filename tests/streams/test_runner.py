"""A running pipeline: ticks, one writer, and what is too large."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import DeclarationError, Files, OperationError, Pipeline, Stream, expect_or_fail
from tapeline.books import Books
from tapeline.books.query import connect, register_table
from tapeline.plan import Plan, resolve
from tapeline.run.runner import Runner
from tapeline.settings import IntakeSettings, Settings
from tapeline.watch.audit import audit
from tests.waiting import wait_for


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

    return resolve(pipeline)


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


def test_a_tick_takes_what_came_and_an_empty_one_publishes_nothing(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    books = Books(plan, settings.home("counted"))
    with Runner(plan, settings, session=spark) as runner:
        thread = threading.Thread(target=runner.run, args=(timedelta(seconds=1),))
        thread.start()
        for name in ("a", "b", "c"):
            drop(tmp_path, name, {"word": name}, {"word": "all"})
        wait_for(lambda: counts(books).get("all") == 3)
        published = runner.flow.published_batch
        second = time.monotonic() + 2.5
        wait_for(lambda: time.monotonic() > second)
        assert runner.flow.published_batch == published
        runner.stop()
        thread.join()
    assert counts(books) == {"a": 1, "b": 1, "c": 1, "all": 3}


def test_once_takes_more_new_files_than_one_pass_looks_at(tmp_path: Path, spark: Any) -> None:
    settings, plan = settings_for(tmp_path), counted()
    settings = replace(settings, intake=replace(settings.intake, files_per_pass=2))
    for number in range(60):  # written in place: each must rest before it is whole
        (tmp_path / "landing" / f"{number:02}").write_text('{"word": "all"}\n')
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
    assert counts(Books(plan, settings.home("counted"))) == {"all": 60}


def test_odd_paths_are_paths_like_any_other(tmp_path: Path, spark: Any) -> None:
    folder = tmp_path / "with space, üñí & 'quoted'"
    folder.mkdir()
    settings, plan = settings_for(folder), counted()
    drop(folder, "a file", {"word": "a"})
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
    books = Books(plan, settings.home("counted"))
    assert counts(books) == {"a": 1}
    assert all(check.balances for check in audit(books))
    with pytest.raises(DeclarationError, match="read as a pattern"):
        Settings(project=tmp_path, root=Path("books[1]")).home("counted")


def test_a_second_process_is_refused_while_the_first_runs(tmp_path: Path, spark: Any) -> None:
    settings, plan = settings_for(tmp_path), counted()
    with (
        Runner(plan, settings, session=spark),
        pytest.raises(OperationError, match=r"ALREADY_RUNNING.*pid"),
    ):
        Runner(plan, settings, session=spark)
    Runner(plan, settings, session=spark).__exit__(None, None, None)


def test_once_fails_with_the_words_of_an_intake_that_cannot_go_on(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    work = settings.home("counted") / "intake" / "raw" / "work"
    with Runner(plan, settings, session=spark) as runner:
        drop(tmp_path, "a", {"word": "a"})
        work.rename(tmp_path / "aside")
        work.write_text("a file where intake needs a folder")
        with pytest.raises(OperationError, match=r"intake at .* cannot go on"):
            runner.run_once()
        work.unlink()
        (tmp_path / "aside").rename(work)
        runner.run_once()
    assert counts(Books(plan, settings.home("counted"))) == {"a": 1}


def test_a_record_over_the_limit_is_quarantined_and_the_rest_goes_on(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    drop(tmp_path, "mixed", {"word": "short"}, {"word": "x" * 10_000}, {"word": "short"})
    drop(tmp_path, "empty")
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
    books = Books(plan, settings.home("counted"))
    assert counts(books) == {"short": 2}
    (row,) = [r for r in books.register("words").to_pylist() if r["_verdict"] == "quarantined"]
    assert "the limit is 200" in row["_reasons"][0]
    assert len(row["_raw"]) == 200
    assert all(check.balances for check in audit(books))


def test_a_rule_that_must_hold_stops_the_flow_but_not_ingest(tmp_path: Path, spark: Any) -> None:
    settings, plan = settings_for(tmp_path), counted()
    drop(tmp_path, "good", {"word": "a", "size": 1})
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
        drop(tmp_path, "bad", {"word": "b", "size": 13})
        with pytest.raises(OperationError, match=r"breaks\s+'size is not forbidden'.*part 2 at 0"):
            runner.run_once()
    books = Books(plan, settings.home("counted"))
    assert counts(books) == {"a": 1}
    with connect() as connection:
        register_table(connection, "tape", books.layout.tape("raw"))
        rows = connection.execute("select count(*) from tape").fetchall()
    assert rows == [(2,)]  # what cannot flow is on the tape all the same


def test_a_changed_step_is_refused_before_it_mixes_with_the_old_books(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    drop(tmp_path, "good", {"word": "a"})
    with Runner(plan, settings, session=spark) as runner:
        runner.run_once()
    changed = counted()
    summary = changed.summaries[0]

    def counts(words: Stream) -> DataFrame:
        return words.groupBy(F.upper("word").alias("word")).agg(F.count("*").alias("n"))

    object.__setattr__(summary, "function", counts)
    with pytest.raises(OperationError, match="the code of counts changed since batch 1"):
        Runner(changed, settings, session=spark)
