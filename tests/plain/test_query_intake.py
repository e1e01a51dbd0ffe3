"""Queries reach the tape exactly once by query and batch id, whatever fails, without Spark."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeline import DeclarationError, OperationError, Pipeline, Query, Stream
from tapeline.books.layout import Layout
from tapeline.books.query_position import QueryPosition, positions
from tapeline.books.tape import Tape
from tapeline.books.tape_batches import deliveries_of
from tapeline.formats.limits import IntakeLimits
from tapeline.intake.checkpoint import Checkpoint
from tapeline.intake.query import QueryIntake
from tapeline.plan import resolve
from tapeline.testing import Crash, crash_at
from tests.support.list_queries import ListQueries, counted, never, query

WORDS = [f"word{number}" for number in range(20)]


def now() -> datetime:
    return datetime.now(UTC)


def opened(home: Path, queries: ListQueries, mode: str = "append", size: int = 50) -> QueryIntake:
    layout = Layout(home)
    tape = Tape(layout, "raw", now)
    limits = IntakeLimits(records_per_piece=size)
    checkpoint = Checkpoint("raw", layout.query("raw"))
    return QueryIntake(query(mode), tape, queries, checkpoint, limits, now)


def take(intake: QueryIntake, times: int = 30) -> None:
    for _ in range(times):
        intake.take()


def rows(home: Path) -> list[dict[str, Any]]:
    tape = Tape(Layout(home), "raw", now)
    batches = tape.since(0)
    raws = tape.read(batches)["raw"].to_pylist() if batches else []
    return [json.loads(raw) for raw in raws]


def words(home: Path) -> list[str]:
    return [row["word"] for row in rows(home)]


FAILURES = st.sampled_from(
    ["query", "query_batch", "tape_decided", "tape_committed", "restart", "still", None]
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(FAILURES, max_size=12), st.integers(1, 4))
def test_whatever_fails_each_row_is_on_the_tape_once(
    tmp_path_factory: pytest.TempPathFactory, failures: list[str | None], size: int
) -> None:
    home, queries = tmp_path_factory.mktemp("query"), ListQueries(WORDS)
    intake = opened(home, queries, size=size)
    for failure in failures:
        queries.fails = failure == "query"
        point = failure if failure in ("query_batch", "tape_decided", "tape_committed") else None
        try:
            with crash_at(point), suppress(OperationError):
                intake.take()
        except Crash:
            # Half of the time the process lives on, as after an error.
            if size % 2:
                intake = opened(home, queries, size=size)
        if failure == "restart":
            intake = opened(home, queries, size=size)
        if failure == "still":
            with intake.still():
                pass
    queries.fails = False
    take(intake)
    assert words(home) == WORDS


def test_a_row_of_the_tape_names_query_and_batch(tmp_path: Path) -> None:
    take(opened(tmp_path, ListQueries(WORDS[:7])))
    found = list(positions(deliveries_of(Layout(tmp_path), "raw")))
    assert [one.batch for one in found] == [0, 1, 2]
    assert len({one.query for one in found}) == 1


def test_a_run_to_the_end_ends_when_the_query_does(tmp_path: Path) -> None:
    intake = opened(tmp_path, ListQueries(WORDS))
    intake.to_the_end = True
    assert intake.waiting() == (1, 0)
    take(intake, 9)
    assert intake.waiting() == (0, 0)
    assert words(tmp_path) == WORDS


def test_what_a_watermark_drops_is_on_the_tape_even_if_nothing_else_came(tmp_path: Path) -> None:
    queries = ListQueries(["a", "late", "late", "late", "late", "b"])
    intake = opened(tmp_path, queries)
    take(intake)
    assert words(tmp_path) == ["a", "b"]
    assert intake.query is not None
    assert intake.query.dropped_by_watermark == 4
    again = opened(tmp_path, queries)
    again.take()
    assert again.query is not None
    assert again.query.dropped_by_watermark == 4


def test_a_lost_checkpoint_is_named_with_what_follows(tmp_path: Path) -> None:
    queries = ListQueries(WORDS[:5])
    take(opened(tmp_path, queries))
    shutil.rmtree(Layout(tmp_path).query("raw"))
    with pytest.raises(OperationError, match=r"CHECKPOINT_LOST: raw: .* comes again"):
        opened(tmp_path, queries).take()
    assert words(tmp_path) == WORDS[:5]


def test_a_query_that_may_start_over_gets_a_new_id_and_says_instead_of_which(
    tmp_path: Path,
) -> None:
    queries = ListQueries(WORDS[:5])
    take(opened(tmp_path, queries, "update"))
    shutil.rmtree(Layout(tmp_path).query("raw"))
    intake = opened(tmp_path, queries, "update")
    intake.start_over = True
    take(intake)
    found = list(positions(deliveries_of(Layout(tmp_path), "raw")))
    first, again = found[:2], found[2:]
    assert [one.batch for one in again] == [0, 1]
    assert [one.number for one in found] == [0, 1, 2, 3]  # the later one counts
    assert [one.instead_of for one in again] == [first[0].query, None]


def test_a_checkpoint_older_than_the_tape_is_refused(tmp_path: Path) -> None:
    """Its next batch would have other rows under an id that is on the tape: they would be lost."""
    queries = ListQueries(WORDS[:5])
    take(opened(tmp_path, queries))
    folder = Layout(tmp_path).query("raw")
    shutil.copytree(folder, tmp_path / "old")
    queries.words += WORDS[5:9]
    take(opened(tmp_path, queries))
    shutil.rmtree(folder)
    shutil.move(tmp_path / "old", folder)
    with pytest.raises(OperationError, match=r"CHECKPOINT_BEHIND: raw: .* has batch 3"):
        opened(tmp_path, queries).take()


def test_the_checkpoint_of_another_query_is_refused(tmp_path: Path) -> None:
    queries = ListQueries(WORDS[:5])
    take(opened(tmp_path / "one", queries))
    take(opened(tmp_path / "other", queries))
    one, other = (Layout(tmp_path / name).query("raw") / "checkpoint" for name in ("one", "other"))
    shutil.rmtree(one)
    shutil.copytree(other, one)
    intake = opened(tmp_path / "one", queries)
    intake.start_over = True
    with pytest.raises(OperationError, match="FOREIGN_CHECKPOINT: raw"):
        intake.take()


def test_a_crash_before_the_id_is_noted_is_no_loss(tmp_path: Path) -> None:
    checkpoint = Checkpoint("raw", tmp_path / "raw")
    checkpoint.begin()
    assert checkpoint.state(None) == "new"
    checkpoint.folder.mkdir()
    (checkpoint.folder / "metadata").write_text('{"id":"1"}')
    assert checkpoint.state(None) == "ok"
    # Also after a loss, when the tape has batches of the query before.
    assert checkpoint.state(QueryPosition("0", 7, 7)) == "ok"
    checkpoint.note("1")
    assert checkpoint.state(QueryPosition("0", 7, 7)) == "ok"
    (checkpoint.folder / "metadata").unlink()
    assert checkpoint.state(None) == "lost"


def test_a_source_that_cannot_replay_begins_a_new_query_at_each_start(tmp_path: Path) -> None:
    queries = ListQueries(WORDS[:2], can_replay=False)
    take(opened(tmp_path, queries))
    queries.words[:] = WORDS[2:4]
    intake = opened(tmp_path, queries)
    take(intake)
    with intake.still():
        pass
    take(intake)
    assert queries.starts == 2  # a backup does not cut the connection
    assert words(tmp_path) == WORDS[:4]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(["a", "b", "c", "none"]), max_size=12),
    st.lists(st.sampled_from(["query_batch", "tape_decided", "tape_committed", None]), max_size=4),
)
def test_keys_that_vanish_from_a_complete_result_are_cancelled(
    tmp_path_factory: pytest.TempPathFactory, said: list[str], failures: list[str | None]
) -> None:
    home, queries = tmp_path_factory.mktemp("query"), ListQueries(said)
    intake = opened(home, queries, "complete")
    for failure in failures:
        try:
            with crash_at(failure):
                intake.take()
        except Crash:
            intake = opened(home, queries, "complete")
    take(intake)
    standing: dict[str, dict[str, Any]] = {}
    for row in rows(home):  # as a table with sequence_by and apply_as_deletes reads them
        before = standing.get(row["word"], {"_query_batch": -1})
        if row["_query_batch"] >= before["_query_batch"]:
            standing[row["word"]] = row
    left = {word: row["count"] for word, row in standing.items() if not row.get("_query_deletes")}
    assert left == {row["word"]: row["count"] for row in counted(said)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "delta"}, "mode 'delta' is not one of append, update, complete"),
        ({"trigger": "continuous 1 second"}, "Continuous processing has no batches"),
        ({"trigger": "soon"}, "trigger 'soon' is not 'asap'"),
        ({"mode": "complete"}, "needs the key of its rows"),
        ({"key": "word"}, "Other modes have none"),
        ({"needs": ["mongo"]}, "needs 'mongo' is not one of avro, kafka"),
        ({"settings": {"spark.driver.memory": "1g"}}, r"write them into \[spark.conf\]"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        Query(never, **options)


def test_a_query_is_a_function() -> None:
    with pytest.raises(DeclarationError, match="str is not a function"):
        Query("select 1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("update", {}),
        ("complete", {"key": "word"}),
        ("complete", {"sequence_by": "_query_batch"}),
    ],
)
def test_a_table_of_versions_says_which_one_counts(mode: Any, said: dict[str, Any]) -> None:
    pipeline = Pipeline("words")
    pipeline.source("raw", query(mode))

    @pipeline.table(**said)
    def counts(raw: Stream) -> Any:
        return raw

    with pytest.raises(DeclarationError, match=r"key=|has sequence_by without a key"):
        resolve(pipeline)


def test_a_plan_shows_function_mode_and_trigger() -> None:
    shown = Query(never, trigger="10 seconds").path
    assert shown == "Structured Streaming query never(), append mode, 10 seconds"
