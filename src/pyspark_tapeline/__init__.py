"""Makes `spark.read.format("tapeline")` known: Spark looks for packages of this name by itself."""

from tapeline.spark.books_source import BooksSource as DefaultSource

__all__ = ["DefaultSource"]
