"""What Spark thinks of a query before it runs: its columns, and whether its output mode can be."""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StringType, StructType

from tapeline.connect.query import ROCKSDB, Query
from tapeline.declare import DeclaredSource
from tapeline.declare.schema import SIMPLE
from tapeline.errors import DeclarationError, TapelineError
from tapeline.extras import require
from tapeline.spark.failures import words_of
from tapeline.spark.internals import node_names, refuse_mode

# What a session of the flow does without and a query with state needs: sessions and windows close
# on a batch without data.
OF_QUERIES = {"spark.sql.streaming.noDataMicroBatches.enabled": "true"}
STATE_IN_PYTHON = {"TransformWithStateInPySpark", "TransformWithStateInPandas"}
# By what Spark says: what to do.
WATERMARK = (
    "Add .withWatermark('<time column>', '10 minutes') before it and group by a window of that "
    "column, or use mode='update' or mode='complete'."
)
JOIN = (
    "Use mode='append'. An outer or semi join of two streams also needs a watermark on both sides "
    "and a bound between their times in its condition."
)
REMEDIES = {
    r"aggregations without watermark": WATERMARK,
    r"no streaming aggregations": "A complete result needs an aggregation. Use mode='append'.",
    r"session window": "Use mode='append' with a watermark, or mode='complete'.",
    r"Limits": "Use mode='append'.",
    r"Distinct aggregations": "Count distinct values in a step that reads this source.",
    r"global watermark": "Use mode='append', or one of the two in a step that reads this source.",
    r"static": "Put the stream on the side that is kept, or use an inner join.",
    r"[Jj]oin": JOIN,
    r"WithinWatermark": "Add .withWatermark('<time column>', '10 minutes') before it.",
    r"data source: kafka": "Write Query(..., needs=['kafka']).",
    r"data source: avro": "Write Query(..., needs=['avro']).",
    r"[Ss]ort": "Only a complete result can be sorted. Leave the order to whoever reads the table.",
}


def own_session(session: SparkSession, query: Query) -> SparkSession:
    """A session with the query's own settings; it shares Spark with the flow."""
    own = session.newSession()
    for key, value in {**OF_QUERIES, **query.settings}.items():
        own.conf.set(key, value)
    return own


def frame_of(own: SparkSession, query: Query) -> DataFrame:
    """The streaming DataFrame of a query, on its own session."""
    frame = query.function(own)
    if not isinstance(frame, DataFrame):
        raise DeclarationError(
            f"{query.what} returns {type(frame).__name__}. Return a streaming DataFrame."
        )
    if not frame.isStreaming:
        raise DeclarationError(
            f"{query.what} returns a DataFrame that is not streaming. Read its input by "
            "session.readStream, or declare it as a reference."
        )
    if node_names(frame) & STATE_IN_PYTHON:
        require("state", f"transformWithState in {query.what}")
        for key, value in ROCKSDB.items():  # Spark runs it with no other store
            own.conf.set(key, query.settings.get(key, value))
    return frame


def schema_of(session: SparkSession, source: DeclaredSource) -> str:
    """The columns of a query as the schema of a source. What Spark refuses is refused here."""
    query: Query = source.connector
    try:
        frame = frame_of(own_session(session, query), query)
        refuse_mode(frame, query.mode)
        return ", ".join(
            f"`{field.name}` {_type(query, field.name, field.dataType)}" for field in frame.schema
        )
    except TapelineError as error:
        raise type(error)(f"{source.where}: {error}") from None
    except Exception as error:
        kind = "" if isinstance(error, AnalysisException) else f"{type(error).__name__}: "
        words = re.split(r"; ?[~'+:A-Z]", words_of(error))[0].rstrip(".;")
        raise DeclarationError(
            f"{source.where}: {query.what} in {query.mode} mode: {kind}{words}. {_remedy(words)}"
        ) from error


def _remedy(words: str) -> str:
    found = [remedy for pattern, remedy in REMEDIES.items() if re.search(pattern, words)]
    return found[0] if found else "Change the query, or its mode: docs/spark.md has the matrix."


def _type(query: Query, name: str, kind: DataType) -> str:
    for inner in _inside(kind):
        maps = isinstance(inner, MapType) and not isinstance(inner.keyType, StringType)
        if maps or not _can_be_kept(inner):
            remedy = "Make its keys strings" if maps else "Cast it to timestamp, to string"
            raise DeclarationError(
                f"{query.what} has the column '{name}' of type {inner.simpleString()}, which the "
                f"tape cannot keep exactly. {remedy} or leave it out."
            )
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
