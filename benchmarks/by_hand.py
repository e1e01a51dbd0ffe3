"""The pipeline as everybody writes it: three Structured Streaming queries on Delta tables.

    python -m benchmarks.by_hand --root DIR --drop DIR [--tuned] [--until-trades N]

files -> bronze -> (rules, repeats dropped) -> silver -> (sums) -> MERGE into gold. It prints a
JSON line when its queries are up and another when `--until-trades` are in gold; it ends by itself
then, or by SIGTERM.

What it cannot do: a record older than the newest one by more than `--watermark` is dropped
without a word, and whether it is depends on how the input falls into batches. So a run that must
equal the truth needs a watermark longer than the oldest late record ("60 days" for our inputs),
and keeps as many keys. Corrections and cancellations are left out by a rule.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import sums
from benchmarks.clock import seconds_since_start
from benchmarks.spark_peer import (
    LINE,
    STATE_IN_MEMORY,
    SUM,
    TRADE,
    Reference,
    connector_jars,
    good_trades,
    lines_of,
    lines_of_topic,
    session,
    window_sums,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MERGE = """
    merge into delta.`{gold}` as gold using changes
    on gold.window_start = changes.window_start and gold.terminal = changes.terminal
        and gold.currency = changes.currency
    when matched then update set *
    when not matched then insert *
"""


class ByHand:
    """The three queries and their tables under one root."""

    def __init__(self, spark: SparkSession, asked: argparse.Namespace) -> None:
        self.spark = spark
        self.root: Path = asked.root.resolve()
        self.drop: Path = asked.drop.resolve()
        self.watermark: str = asked.watermark
        self.files_per_batch: int | None = asked.files_per_batch
        self.brokers: str | None = asked.brokers
        self.topic: str | None = asked.topic
        self.reference = Reference(spark, asked.reference or self.drop.parent / "reference")
        self.gold_changed = threading.Event()
        for table, schema in (
            ("bronze", f"{LINE}, arrived_at timestamp"),
            ("silver", TRADE),
            ("gold", SUM),
        ):
            path = self.root / table
            spark.sql(f"create table if not exists delta.`{path}` ({schema}) using delta")

    def start(self) -> list[StreamingQuery]:
        return [self._bronze(), self._silver(), self._gold()]

    def _bronze(self) -> StreamingQuery:
        from pyspark.sql import functions as F

        if self.topic:
            lines = lines_of_topic(self.spark.readStream, self.brokers, self.topic)
            return self._append(lines.withColumn("arrived_at", F.current_timestamp()), "bronze")
        reader = self.spark.readStream
        if self.files_per_batch:
            reader = reader.option("maxFilesPerTrigger", self.files_per_batch)
        lines = lines_of(reader, self.drop).withColumn("arrived_at", F.current_timestamp())
        return self._append(lines, "bronze")

    def _silver(self) -> StreamingQuery:
        lines = self._follow("bronze")
        trades = good_trades(lines, self.reference.currency_codes)
        once = trades.withWatermark("traded_at", self.watermark)
        return self._append(once.dropDuplicatesWithinWatermark(["trade_id"]), "silver")

    def _gold(self) -> StreamingQuery:
        trades = self._follow("silver").withWatermark("traded_at", self.watermark)
        writer = window_sums(trades, self.reference).writeStream.outputMode("update")
        writer = writer.foreachBatch(self._merge)
        return writer.option("checkpointLocation", self._checkpoint("gold")).start()

    def _merge(self, changes: DataFrame, number: int) -> None:
        # Not persisted: MERGE keeps a copy of its source, and a second one costs a tenth more.
        changes.createOrReplaceTempView("changes")
        changes.sparkSession.sql(MERGE.format(gold=self.root / "gold"))
        self.gold_changed.set()

    def _follow(self, table: str) -> DataFrame:
        return self.spark.readStream.format("delta").load(str(self.root / table))

    def _append(self, rows: DataFrame, table: str) -> StreamingQuery:
        writer = rows.writeStream.format("delta").outputMode("append")
        writer = writer.queryName(table).option("checkpointLocation", self._checkpoint(table))
        return writer.start(str(self.root / table))

    def _checkpoint(self, table: str) -> str:
        return str(self.root / "checkpoints" / table)


def gold_rows(root: Path | str) -> list[sums.Row]:
    """The sums as they stand in gold, read without Spark."""
    from deltalake import DeltaTable

    table = DeltaTable(str(Path(root) / "gold")).to_pyarrow_table(columns=list(sums.COLUMNS))
    return [sums.row(one.values()) for one in table.to_pylist()]


class GoldTotal:
    """Counts the trades in gold, without Spark. Reads data only when the table has changed."""

    def __init__(self, root: Path | str) -> None:
        self._path = str(Path(root) / "gold")
        self._table: Any = None
        self._version = -1
        self._total = 0

    def __call__(self) -> int:
        from deltalake import DeltaTable

        if self._table is None:
            if not DeltaTable.is_deltatable(self._path):
                return 0
            self._table = DeltaTable(self._path)
        else:
            self._table.update_incremental()
        if self._table.version() != self._version:
            trades = self._table.to_pyarrow_table(columns=["trades"])["trades"]
            self._total = sum(trades.to_pylist())
            self._version = self._table.version()
        return self._total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="takes tables and checkpoints")
    parser.add_argument("--drop", type=Path, required=True)
    parser.add_argument("--reference", type=Path, help="default: beside the drop folder")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--state-in-memory", action="store_true", help="tuned without RocksDB")
    parser.add_argument("--watermark", default="2 days")
    parser.add_argument("--files-per-batch", type=int)
    parser.add_argument("--until-trades", type=int)
    parser.add_argument("--topic", help="in place of the drop folder")
    parser.add_argument("--brokers", help="where the topic is")
    asked = parser.parse_args()
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    more = STATE_IN_MEMORY if asked.state_in_memory else {}
    if asked.topic:
        more |= connector_jars()
    spark = session("by-hand", asked.root / "work", asked.tuned, **more)
    pipeline = ByHand(spark, asked)
    queries = pipeline.start()
    ready = seconds_since_start()
    say("ready", asked, seconds_from_start=round(ready, 3))
    total = GoldTotal(asked.root)
    while not told.wait(0.05):
        broken = [query for query in queries if not query.isActive]
        if broken:
            raise SystemExit(f"a query has ended: {broken[0].exception()}")
        if asked.until_trades and pipeline.gold_changed.is_set():
            pipeline.gold_changed.clear()
            if total() >= asked.until_trades:
                break
    done = seconds_since_start()
    for query in queries:
        query.stop()
    rows = gold_rows(asked.root)
    say(
        "done",
        asked,
        trades=sums.trades(rows),
        checksum=sums.checksum(rows),
        seconds_from_start=round(done, 3),
        seconds_from_ready=round(done - ready, 3),
    )
    spark.stop()


def say(event: str, asked: argparse.Namespace, **facts: object) -> None:
    print(json.dumps({"event": event, "arm": "by_hand", "tuned": asked.tuned, **facts}), flush=True)


if __name__ == "__main__":
    main()
