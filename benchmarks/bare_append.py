"""What a micro-batch costs at least: one foreachBatch, one Delta append through Spark.

    python -m benchmarks.bare_append --drop DIR [--warm-up 20] [--batches 40]

Follows a folder of small files, one file a batch, and appends its lines as they are. Each call of
foreachBatch is timed, and each batch from start to start.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.latency import percentile
from benchmarks.spark_peer import lines_of, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMEOUT_SECONDS = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drop", type=Path, required=True)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--plain", action="store_true", help="Spark's defaults")
    asked = parser.parse_args()
    files = len(list(asked.drop.glob("*.jsonl")))
    needed = asked.warm_up + asked.batches
    if files < needed:
        raise SystemExit(f"{asked.drop} has {files} files; {needed} are needed, one for each batch")
    with tempfile.TemporaryDirectory(prefix="bare-append-") as work:
        print(json.dumps(run(asked, Path(work), needed)), flush=True)


def run(asked: argparse.Namespace, work: Path, needed: int) -> dict[str, object]:
    spark = session("bare-append", work / "spark", tuned=not asked.plain)
    started: list[float] = []
    calls_ms: list[float] = []
    enough = threading.Event()

    def append(batch: DataFrame, number: int) -> None:
        if len(calls_ms) == needed:
            return
        started.append(time.perf_counter())
        batch.write.format("delta").mode("append").save(str(work / "table"))
        calls_ms.append((time.perf_counter() - started[-1]) * 1000)
        if len(calls_ms) == needed:
            enough.set()

    lines = lines_of(spark.readStream.option("maxFilesPerTrigger", 1), asked.drop)
    writer = lines.writeStream.foreachBatch(append)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    done = enough.wait(TIMEOUT_SECONDS)
    failed = query.exception()
    query.stop()
    rows = spark.read.format("delta").load(str(work / "table")).count() if done else 0
    spark.stop()
    if not done:
        raise SystemExit(f"{len(calls_ms)} of {needed} batches were written: {failed}")
    measured = calls_ms[asked.warm_up :]
    whole = [(later - earlier) * 1000 for earlier, later in pairwise(started)]
    whole = whole[asked.warm_up :]
    return {
        "event": "done",
        "arm": "bare_append",
        "tuned": not asked.plain,
        "batches": len(measured),
        "rows": rows,
        "append_ms_p50": round(median(measured), 1),
        "append_ms_p95": round(percentile(measured, 95), 1),
        "batch_ms_p50": round(median(whole), 1),
        "batch_ms_p95": round(percentile(whole, 95), 1),
        "append_ms": [round(one, 1) for one in calls_ms],
    }


if __name__ == "__main__":
    main()
