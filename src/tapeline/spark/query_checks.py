"""What Spark thinks of a query before it runs: its columns, and whether its output mode can be."""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from tapeline.connect.query import Query
from tapeline.declare import DeclaredSource
from tapeline.declare.schema import SIMPLE
from tapeline.errors import DeclarationError
from tapeline.spark.failures import words_of
from tapeline.spark.internals import refuse_mode

# By what Spark says: what to do.
REMEDIES = (
    (r"aggregations without watermark",
     "Add .withWatermark('<time column>', '10 minutes') before the aggregation and group by a window "
     "of that column, or use mode='update' or mode='complete'."),
    (r"no streaming aggregations",
     "A complete result needs an aggregation, such as groupBy(...).count(). Use mode='append'."),
    (r"[Jj]oin",
     "Use mode='append'. An outer join of two streams needs a watermark on both sides and a bound "
     "between their times in the condition."),
    (r"Failed to find the data source: kafka|kafka.*not.*found",
     "Write Query(..., needs=['kafka'])."),
    (r"avro", "Write Query(..., needs=['avro'])."),
    (r"[Ss]ort", "Sort a complete result only, or leave the sort to whoever reads the table."),
    (r"protobuf", "Run: pip install 'tapeline[state]'"),
)  # fmt: skip


def frame_of(session: SparkSession, query: Query) -> DataFrame:
    """The streaming DataFrame that a query's function returns."""
    frame = query.function(session)
    if not isinstance(frame, DataFrame):
        raise DeclarationError(
            f"{query.what} returns {type(frame).__name__}. Return a streaming DataFrame."
        )
    if not frame.isStreaming:
        raise DeclarationError(
            f"{query.what} returns a DataFrame that is not streaming. Read its input by "
            "session.readStream, or declare it as a reference."
        )
    return frame


def checked(session: SparkSession, source: DeclaredSource) -> DataFrame:
    """The DataFrame of a source's query. What Spark refuses is refused here, with a remedy."""
    query: Query = source.connector
    try:
        frame = frame_of(session, query)
        refuse_mode(frame, query.mode)
    except DeclarationError as error:
        raise DeclarationError(f"{source.where}: {error}") from None
    except Exception as error:
        kind = "" if isinstance(error, AnalysisException) else f"{type(error).__name__}: "
        words = words_of(error)
        raise DeclarationError(
            f"{source.where}: {query.what} in {query.mode} mode: {kind}{words} {_remedy(words)}"
        ) from error
    return frame


def _remedy(words: str) -> str:
    found = [remedy for pattern, remedy in REMEDIES if re.search(pattern, words)]
    return found[0] if found else "Change the query, or its mode; docs/spark.md has the matrix."


def schema_of(frame: DataFrame, source: DeclaredSource) -> str:
    """The columns of a query as the schema of a source, whatever Spark's plan looks like."""
    return ", ".join(
        f"`{field.name}` {_type(source, field.name, field.dataType)}" for field in frame.schema
    )


def _type(source: DeclaredSource, name: str, kind: DataType) -> str:
    for inner in _inside(kind):
        if isinstance(inner, MapType) and not isinstance(inner.keyType, StringType):
            raise _refused(source, name, inner, "Make its keys strings")
        if not _can_be_kept(inner):
            raise _refused(source, name, inner, "Cast it to another type, such as timestamp")
    return kind.simpleString()


def _can_be_kept(kind: DataType) -> bool:
    nested = isinstance(kind, StructType | ArrayType | MapType)
    return nested or isinstance(kind, DecimalType) or kind.simpleString() in SIMPLE


def _inside(kind: DataType) -> list[DataType]:
    """A type and all types inside it."""
    parts: list[Any] = []
    if isinstance(kind, StructType):
        parts = [field.dataType for field in kind]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    return [kind, *(inner for part in parts for inner in _inside(part))]


def _refused(source: DeclaredSource, name: str, kind: DataType, remedy: str) -> DeclarationError:
    return DeclarationError(
        f"{source.where}: {source.connector.what} has the column '{name}' of type "
        f"{kind.simpleString()}, which the tape cannot keep exactly. {remedy} or string in the "
        "query."
    )
