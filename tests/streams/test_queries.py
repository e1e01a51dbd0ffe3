"""Structured Streaming queries as sources, on real Spark: what they give reaches the books once."""

from __future__ import annotations

import shutil
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tapeline import OperationError, Pipeline, Query, Stream
from tapeline.books.query_position import unproved
from tapeline.operate.backup import back_up, restore
from tapeline.operate.doctor import examine
from tapeline.settings import Settings
from tapeline.testing import Books, Crash, Deployment, crash_at
from tests.support.queries import Inbox, counts, deployed, now, words
from tests.support.waiting import wait_for


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


def words_of(inbox: Inbox) -> Query:
    def split(session: SparkSession) -> DataFrame:
        lines = inbox.read(session, "line string")
        return lines.select(F.explode(F.split("line", " ")).alias("word"))

    return Query(split)


def test_words_are_counted_once_after_a_crash_before_spark_commits(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    run = deployed(words(words_of(inbox)), tmp_path)
    inbox.put({"line": "a b a"})
    inbox.put({"line": "c"}, {"line": "a d"})
    with crash_at("tape_committed"), pytest.raises(Crash):
        run.run_once(spark)
    inbox.put({"line": "b z"})
    run.run_once(spark)
    assert counts(run) == Counter("abacadbz")
    assert run.unbalanced() == []


def test_a_backup_has_the_checkpoint_and_a_lost_one_is_named(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    run = deployed(words(words_of(inbox)), tmp_path)
    inbox.put({"line": "a b"})
    run.run_once(spark)
    backup, _ = back_up(run.books, tmp_path / "backups", now(), False, lambda *_: None)
    inbox.put({"line": "a c"})
    run.run_once(spark)
    restored = deployed(run.plan.pipeline, tmp_path, "restored")
    restore(restored.books, backup, lambda *_: None)
    assert counts(restored) == Counter("ab")
    restored.run_once(spark)
    assert counts(restored) == counts(run) == Counter("abac")
    assert restored.unbalanced() == []
    shutil.rmtree(restored.books.layout.query("raw_words"))
    (found,) = source_findings(restored.books, restored.settings)
    assert found.state == "error"
    assert "CHECKPOINT_LOST" in found.words
    with pytest.raises(OperationError, match="CHECKPOINT_LOST"):
        restored.run_once(spark)


def source_findings(books: Books, settings: Settings) -> list[Any]:
    return [one for one in examine(books, settings, now()) if one.what.startswith("source ")]


SCHEMA = (
    "id string, price decimal(38,18), at timestamp, day date, size bigint, ratio double, "
    "legs array<struct<name:string,price:decimal(18,8),at:timestamp>>, tags map<string,int>"
)
ROW = {
    "id": "t1",
    "price": "12345678901234567890.123456789012345678",
    "at": "2026-11-13T10:05:00.123456Z",
    "day": "2026-11-13",
    "size": 2**63 - 1,
    "ratio": 0.1,
    "legs": [{"name": "x", "price": "0.00000001", "at": "2026-01-01T00:00:00Z"}],
    "tags": {"a": 1},
}


def test_every_value_is_in_the_table_as_the_query_made_it(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    pipeline = Pipeline("values")

    def values(session: SparkSession) -> DataFrame:
        read = inbox.read(session, SCHEMA)
        return read.withColumn("raw", F.encode(F.lit("\x00é"), "UTF-8"))

    pipeline.source("raw_values", Query(values))

    @pipeline.table(key="id", time="at")
    def kept(raw_values: Stream) -> DataFrame:
        return raw_values

    run = deployed(pipeline, tmp_path)
    inbox.put(ROW, {**dict.fromkeys(ROW), "id": "t2", "at": ROW["at"]})
    run.run_once(spark)
    first, second = sorted(run.read("kept"), key=lambda row: str(row["id"]))
    assert first["price"] == Decimal(str(ROW["price"]))
    assert first["at"] == datetime(2026, 11, 13, 10, 5, 0, 123456, UTC)
    assert (str(first["day"]), first["size"], first["ratio"]) == ("2026-11-13", 2**63 - 1, 0.1)
    leg = {"name": "x", "price": Decimal("0.00000001"), "at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert first["legs"] == [leg]
    assert dict(first["tags"]) == {"a": 1}
    assert first["raw"] == "\x00é".encode()
    assert second["price"] is None
    assert second["legs"] is None


def test_keys_that_vanish_from_a_complete_result_leave_the_table(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    pipeline = Pipeline("stock")

    def on_hand(session: SparkSession) -> DataFrame:
        moves = inbox.read(session, "item string, moved bigint")
        return moves.groupBy("item").agg(F.sum("moved").alias("left")).where("left > 0")

    pipeline.source("raw_stock", Query(on_hand, mode="complete", key="item"))

    @pipeline.table(key="item", sequence_by="_query_batch", apply_as_deletes="_query_deletes")
    def stock(raw_stock: Stream) -> DataFrame:
        return raw_stock

    run = deployed(pipeline, tmp_path)
    inbox.put({"item": "a", "moved": 5}, {"item": "b", "moved": 2}, {"item": "c", "moved": 1})
    inbox.put({"item": "a", "moved": -5}, {"item": "b", "moved": 1})
    run.run_once(spark)
    assert {row["item"]: row["left"] for row in run.read("stock")} == {"b": 3, "c": 1}
    inbox.put({"item": "c", "moved": -1}, {"item": "a", "moved": 7})
    run.run_once(spark)  # it knows from the tape which keys the last result had
    assert {row["item"]: row["left"] for row in run.read("stock")} == {"a": 7, "b": 3}
    assert run.unbalanced() == []


def test_sessions_close_and_what_the_watermark_drops_is_counted(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    pipeline = Pipeline("visits")

    def sessions(session: SparkSession) -> DataFrame:
        clicks = inbox.read(session, "who string, at timestamp").withWatermark("at", "10 minutes")
        found = clicks.groupBy("who", F.session_window("at", "5 minutes").alias("visit")).count()
        return found.select("who", "visit.start", "visit.end", "count")

    pipeline.source("raw_visits", Query(sessions))

    @pipeline.table
    def visits(raw_visits: Stream) -> DataFrame:
        return raw_visits

    run = deployed(pipeline, tmp_path)
    inbox.put(*(click("ann", minute) for minute in ("10:00", "10:04", "10:30")))
    inbox.put(click("bob", "12:00"))
    inbox.put(click("ann", "10:01"))  # an hour and 49 minutes later than the watermark
    run.run_once(spark)
    # Bob's own visit is open: no later click has moved the watermark past its end.
    assert [(row["who"], f"{row['start']:%H:%M}", row["count"]) for row in run.read("visits")] == [
        ("ann", "10:00", 2), ("ann", "10:30", 1),
    ]  # fmt: skip
    source = run.status().sources["raw_visits"]
    assert source.query is not None
    assert source.query.dropped_by_watermark == 1
    (found,) = source_findings(run.books, run.settings)
    assert found.state == "warning"
    assert "dropped 1 row (Spark counts after partial aggregation" in found.words
    assert run.unbalanced() == []
    (known,) = unproved(run.books)
    assert known["dropped_by_watermark"] == 1
    assert known["words"].startswith("What the query did is counted, not proved")


def click(who: str, minute: str) -> dict[str, str]:
    return {"who": who, "at": f"2026-11-13T{minute}:00Z"}


def test_counts_of_an_update_query_go_on_after_a_restart(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    pipeline = Pipeline("latest")

    def latest(session: SparkSession) -> DataFrame:
        return inbox.read(session, "word string").groupBy("word").count()

    rocks = Query(latest, mode="update", settings=Query.ROCKSDB, trigger="once")
    pipeline.source("raw_counts", rocks)

    @pipeline.table(key="word", sequence_by="_query_batch")
    def word_counts(raw_counts: Stream) -> DataFrame:
        return raw_counts

    run = deployed(pipeline, tmp_path)
    inbox.put({"word": "a"}, {"word": "b"}, {"word": "a"})
    run.run_once(spark)
    inbox.put({"word": "a"})
    run.run_once(spark)
    assert counts(run) == {"a": 3, "b": 1}


@contextmanager
def telling() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_lines_of_a_socket_are_counted_while_they_come(spark: SparkSession, tmp_path: Path) -> None:
    with telling() as server:
        port = server.getsockname()[1]

        def lines(session: SparkSession) -> DataFrame:
            options = {"host": "127.0.0.1", "port": port}
            read = session.readStream.format("socket").options(**options).load()
            return read.select(F.explode(F.split("value", " ")).alias("word"))

        run = deployed(words(Query(lines)), tmp_path)
        with run.running(session=spark):
            connection, _ = server.accept()
            connection.sendall(b"to be or not\nto be\n")
            wait_for(lambda: counts(run) == Counter(["to", "be", "or", "not", "to", "be"]))
            backup, _ = back_up(run.books, tmp_path / "backups", now(), False, lambda *_: None)
            connection.sendall(b"be\n")  # a backup does not cut the connection
            wait_for(lambda: counts(run).get("be") == 3)
        assert backup.is_dir()
        assert run.unbalanced() == []
        connection.close()


def test_a_backup_while_the_query_runs_has_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = Pipeline("numbers")

    def numbers(session: SparkSession) -> DataFrame:
        options = {"rowsPerBatch": 3, "numPartitions": 1}
        read = session.readStream.format("rate-micro-batch").options(**options).load()
        return read.select("value")

    pipeline.source("raw_numbers", Query(numbers, trigger="1 second"))

    @pipeline.table
    def seen(raw_numbers: Stream) -> DataFrame:
        return raw_numbers

    def values(of: Deployment) -> list[int]:
        return sorted(row["value"] for row in of.read("seen"))

    run = deployed(pipeline, tmp_path)
    with run.running(session=spark):
        wait_for(lambda: len(run.read("seen")) >= 6)
        backup, _ = back_up(run.books, tmp_path / "backups", now(), False, lambda *_: None)
        before = len(run.read("seen"))
        wait_for(lambda: len(run.read("seen")) >= before + 6)  # it goes on
    assert values(run) == list(range(len(values(run))))
    restored = deployed(pipeline, tmp_path, "restored")
    restore(restored.books, backup, lambda *_: None)
    restored.run_once(spark)
    assert values(restored) == list(range(len(values(restored))))
    assert len(values(restored)) > 6


def test_a_failing_query_is_named_and_started_again(
    spark: SparkSession, tmp_path: Path, inbox: Inbox
) -> None:
    def halves(session: SparkSession) -> DataFrame:
        return inbox.read(session, "size bigint").selectExpr("cast(10 / size as string) word")

    run = deployed(words(Query(halves)), tmp_path)
    inbox.put({"size": 0})
    with run.running(session=spark):
        wait_for(lambda: "raw_words" in run.status().problems)
        problem = run.status().problems["raw_words"]
        assert "QUERY_FAILED: halves(): [DIVIDE_BY_ZERO]" in problem
        assert "=== Streaming Query" not in problem
        for path in inbox.folder.iterdir():  # the sender mends its file
            path.write_text('{"size":5}\n')
        wait_for(lambda: counts(run) == {"2.0": 1})
    assert run.unbalanced() == []
