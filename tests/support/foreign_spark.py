"""A Spark of somebody else's: with Delta, without Tapeline. It runs SQL and writes what it reads.

    python -m tests.support.foreign_spark <jar> ...

A request is a line of JSON, {"run": "views.sql"} or {"read": "name", "to": "rows.parquet"}, and so
is its answer: "ok" or the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Not UTC: nothing may rest on the reader's own zone.
    "spark.sql.session.timeZone": "Asia/Tokyo",
}


def start(jars: list[str]) -> SparkSession:
    builder: Any = SparkSession.builder.master("local[2]").appName("somebody else's")
    builder = builder.config("spark.jars", ",".join(jars))
    for key, value in DELTA.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def answer(session: SparkSession, asked: dict[str, str]) -> None:
    if "run" in asked:
        for statement in Path(asked["run"]).read_text(encoding="utf-8").split(";\n"):
            lines = [line for line in statement.splitlines() if not line.startswith("--")]
            if "".join(lines).strip():
                session.sql(statement)
    else:
        pq.write_table(session.table(asked["read"]).toArrow(), asked["to"])


def main() -> None:
    session = start(sys.argv[1:])
    for line in sys.stdin:
        try:
            answer(session, json.loads(line))
            said = "ok"
        except Exception as error:  # noqa: BLE001 - the test shows it
            said = str(error)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
