"""`tapeline` in a process of its own, as a person or a script starts it, and a project for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PIPELINE = '''
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_quarantine

pipeline = Pipeline("sales")
pipeline.source("raw_sales", Files("inbox/", format="csv", schema="id string, shop string, money decimal(12,2)"))


@pipeline.table(key="id")
@expect_or_quarantine("money is above zero", "money > 0")
def sales(raw_sales: Stream) -> DataFrame:
    """One row per sale."""
    return raw_sales


@pipeline.summary(key="shop")
def by_shop(sales: Stream) -> DataFrame:
    """Money per shop."""
    return sales.groupBy("shop").agg(F.sum("money").alias("money"), F.count("*").alias("sales"))
'''  # noqa: E501
COMMAND = [sys.executable, "-m", "tapeline"]
ENVIRONMENT = {**os.environ, "TAPELINE_JARS": str(Path(__file__).parents[2] / ".jars")}


def tapeline(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=ENVIRONMENT,
        check=False,
    )
