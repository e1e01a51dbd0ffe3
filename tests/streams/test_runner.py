"""A running pipeline: ticks, one writer, and what is too large."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import DeclarationError, OperationError, Stream
from tapeline.settings import Settings
from tapeline.store.duckdb import connect, register_table
from tapeline.testing import Deployment, unbalanced
from tests.support.counted_words import counted, counts, drop, settings_for
from tests.support.waiting import wait_for


def test_a_tick_takes_what_came_and_an_empty_one_publishes_nothing(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    deployment = Deployment(plan, settings)
    books = deployment.books
    with deployment.running(timedelta(seconds=1)) as runner:
        for name in ("a", "b", "c"):
            drop(tmp_path, name, {"word": name}, {"word": "all"})
        wait_for(lambda: counts(books).get("all") == 3)
        published = runner.flow.published_batch
        second = time.monotonic() + 2.5
        wait_for(lambda: time.monotonic() > second)
        assert runner.flow.published_batch == published
    assert counts(books) == {"a": 1, "b": 1, "c": 1, "all": 3}


def test_once_takes_more_new_files_than_one_pass_looks_at(tmp_path: Path, spark: Any) -> None:
    settings, plan = settings_for(tmp_path), counted()
    settings = replace(settings, intake=replace(settings.intake, files_per_pass=2))
    for number in range(60):  # written in place: each must rest before it is whole
        (tmp_path / "landing" / f"{number:02}").write_text('{"word": "all"}\n')
    deployment = Deployment(plan, settings)
    deployment.run_once()
    assert counts(deployment.books) == {"all": 60}


def test_odd_paths_are_paths_like_any_other(tmp_path: Path, spark: Any) -> None:
    folder = tmp_path / "with space, üñí & 'quoted'"
    folder.mkdir()
    settings, plan = settings_for(folder), counted()
    drop(folder, "a file", {"word": "a"})
    deployment = Deployment(plan, settings)
    deployment.run_once()
    books = deployment.books
    assert counts(books) == {"a": 1}
    assert unbalanced(books) == []
    with pytest.raises(DeclarationError, match="treat as a pattern"):
        Settings(project=tmp_path, root=Path("books[1]")).home("counted")


def test_a_second_process_is_refused_while_the_first_runs(tmp_path: Path, spark: Any) -> None:
    settings, plan = settings_for(tmp_path), counted()
    deployment = Deployment(plan, settings)
    with (
        deployment.runner(),
        pytest.raises(OperationError, match=r"ALREADY_RUNNING.*pid"),
    ):
        deployment.runner()
    deployment.runner().__exit__(None, None, None)


def test_once_fails_with_the_words_of_an_intake_that_cannot_go_on(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    work = settings.home("counted") / "intake" / "raw" / "staged"
    deployment = Deployment(plan, settings)
    with deployment.runner() as runner:
        drop(tmp_path, "a", {"word": "a"})
        work.rename(tmp_path / "aside")
        work.write_text("a file where intake needs a folder")
        with pytest.raises(OperationError, match=r"intake at .* cannot continue"):
            runner.run_once()
        work.unlink()
        (tmp_path / "aside").rename(work)
        runner.run_once()
    assert counts(deployment.books) == {"a": 1}


def test_a_record_over_the_limit_is_quarantined_and_the_rest_goes_on(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    drop(tmp_path, "mixed", {"word": "short"}, {"word": "x" * 10_000}, {"word": "short"})
    drop(tmp_path, "empty")
    deployment = Deployment(plan, settings)
    deployment.run_once()
    books = deployment.books
    assert counts(books) == {"short": 2}
    (row,) = [r for r in books.register("words").to_pylist() if r["_verdict"] == "quarantined"]
    assert "the limit is 200" in row["_reasons"][0]
    assert len(row["_raw"]) == 200
    assert unbalanced(books) == []


def test_a_rule_that_must_hold_stops_the_flow_but_not_ingest(tmp_path: Path, spark: Any) -> None:
    settings, plan = settings_for(tmp_path), counted()
    drop(tmp_path, "good", {"word": "a", "size": 1})
    deployment = Deployment(plan, settings)
    with deployment.runner() as runner:
        runner.run_once()
        drop(tmp_path, "bad", {"word": "b", "size": 13})
        with pytest.raises(OperationError, match=r"'size is not forbidden'.*part 2 at 0"):
            runner.run_once()
    books = deployment.books
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
    Deployment(plan, settings).run_once()
    changed = counted()
    summary = changed.summaries[0]

    def counts(words: Stream) -> DataFrame:
        return words.groupBy(F.upper("word").alias("word")).agg(F.count("*").alias("n"))

    object.__setattr__(summary, "function", counts)
    with pytest.raises(OperationError, match="counts changed since batch 1"):
        Deployment(changed, settings).runner()
