"""The floor: a Spark batch job that reads the files, computes the sums, and keeps nothing.

python -m benchmarks.batch_sums --drop DIR --reference DIR [--tuned]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks import sums
from benchmarks.clock import seconds_since_start
from benchmarks.spark_peer import Reference, good_trades, lines_of, session, window_sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drop", type=Path, required=True)
    parser.add_argument("--reference", type=Path, help="default: beside the drop folder")
    parser.add_argument("--tuned", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batch-sums-") as work:
        print(json.dumps(run(asked, Path(work))), flush=True)


def run(asked: argparse.Namespace, work: Path) -> dict[str, object]:
    from pyspark.sql import functions as F

    spark = session("batch-sums", work, asked.tuned)
    ready = seconds_since_start()
    reference = Reference(spark, asked.reference or asked.drop.parent / "reference")
    lines = lines_of(spark.read, asked.drop).withColumn("arrived_at", F.current_timestamp())
    trades = good_trades(lines, reference.currency_codes).dropDuplicates(["trade_id"])
    found = [sums.row(one) for one in window_sums(trades, reference).collect()]
    done = seconds_since_start()
    spark.stop()
    return {
        "event": "done",
        "arm": "batch_sums",
        "tuned": asked.tuned,
        "trades": sums.trades(found),
        "checksum": sums.checksum(found),
        "seconds_from_start": round(done, 3),
        "seconds_from_ready": round(done - ready, 3),
    }


if __name__ == "__main__":
    main()
