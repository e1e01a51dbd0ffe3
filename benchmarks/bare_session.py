"""A bare Spark session with one job, as PySpark starts it: `python -m benchmarks.bare_session`."""

from __future__ import annotations

from pyspark.sql import SparkSession

if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = session.getOrCreate()
    assert spark.range(1_000).selectExpr("sum(id)").first()[0] == 499_500
    spark.stop()
