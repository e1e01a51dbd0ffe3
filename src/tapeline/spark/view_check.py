"""What Spark says of the declared views: they are written for DuckDB and should suit both."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tapeline.books import Books
from tapeline.books.sql_dialects import SparkLive


def refused_by_spark(session: SparkSession, books: Books) -> dict[str, str]:
    """The views that Spark cannot analyse, each with its reason; no row is read."""
    pipeline = books.plan.pipeline
    apart = session.newSession()
    for setting in SparkLive.settings:
        apart.sql(setting)
    for name in (*pipeline.summaries, *pipeline.tables, *pipeline.references):
        empty = books.shape(name).empty_table()
        apart.createDataFrame(empty).createOrReplaceTempView(name)
    refused: dict[str, str] = {}
    for name, view in pipeline.views.items():
        try:
            apart.sql(view.sql).createOrReplaceTempView(name)
        except PySparkException as error:
            refused[name] = "Spark says: " + str(error).strip().split("\n")[0]
    return refused
