"""Spark's private classes, behind one typed face: a new version of Spark is met in this module.

All of it is of exactly the pinned version. tests/steps/test_prepared.py compares prepared steps
with the same steps run the ordinary way; tests/plain/test_internals.py keeps private names in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from tempfile import NamedTemporaryFile
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

from tapeline.errors import OperationError, TapelineBug

PINNED = "4.2.0"  # a test compares it with pyproject.toml
DROPPED = "numRowsDroppedByWatermark"
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class ScalaSeq(Protocol[T_co]):
    """A sequence of Scala's."""

    def apply(self, index: int, /) -> T_co: ...
    def size(self) -> int: ...


class JavaType(Protocol):
    """A data type of Spark's."""

    def simpleString(self) -> str: ...  # noqa: N802 - Spark's own names, here and below
    def typeName(self) -> str: ...  # noqa: N802
    def precision(self) -> int: ...
    def scale(self) -> int: ...


class JavaClass(Protocol):
    def getSimpleName(self) -> str: ...  # noqa: N802
    def getName(self) -> str: ...  # noqa: N802


class Metadata(Protocol):
    def contains(self, name: str, /) -> bool: ...


class ExprId(Protocol):
    def equals(self, other: ExprId, /) -> bool: ...


class Expression(Protocol):
    """An expression of an analysed plan, as far as plans are read here."""

    def nodeName(self) -> str: ...  # noqa: N802
    def getClass(self) -> JavaClass: ...  # noqa: N802
    def children(self) -> ScalaSeq[Expression]: ...
    def child(self) -> Expression: ...
    def dataType(self) -> JavaType: ...  # noqa: N802
    def deterministic(self) -> bool: ...
    def sql(self) -> str: ...
    def name(self) -> str: ...
    def exprId(self) -> ExprId: ...  # noqa: N802
    def metadata(self) -> Metadata: ...
    def extractFieldName(self) -> str: ...  # noqa: N802
    def aggregateFunction(self) -> Expression: ...  # noqa: N802
    def isDistinct(self) -> bool: ...  # noqa: N802
    def filter(self) -> Any: ...
    def getTagValue(self, tag: Any, /) -> Any: ...  # noqa: N802
    def ordinal(self) -> Any: ...
    def pivotColumn(self) -> Expression: ...  # noqa: N802
    def pivotColumnValues(self) -> ScalaSeq[Any]: ...  # noqa: N802
    def valueColumn(self) -> Expression: ...  # noqa: N802


class JoinType(Protocol):
    def sql(self) -> str: ...
    def toString(self) -> str: ...  # noqa: N802


class AttributeSet(Protocol):
    def toSeq(self) -> ScalaSeq[Expression]: ...  # noqa: N802


class PlanNode(Protocol):
    """A node of a logical plan, as far as plans are read here."""

    def nodeName(self) -> str: ...  # noqa: N802
    def children(self) -> ScalaSeq[PlanNode]: ...
    def child(self) -> PlanNode: ...
    def output(self) -> ScalaSeq[Expression]: ...
    def expressions(self) -> ScalaSeq[Expression]: ...
    def references(self) -> AttributeSet: ...
    def collectLeaves(self) -> ScalaSeq[PlanNode]: ...  # noqa: N802
    def sameResult(self, other: PlanNode, /) -> bool: ...  # noqa: N802
    def equals(self, other: PlanNode, /) -> bool: ...
    def simpleString(self, fields: int, /) -> str: ...  # noqa: N802
    def joinType(self) -> JoinType: ...  # noqa: N802
    def projectList(self) -> ScalaSeq[Expression]: ...  # noqa: N802
    def aggregateExpressions(self) -> ScalaSeq[Expression]: ...  # noqa: N802


class Thrown(Protocol):
    """What a task threw."""

    def getMessage(self) -> str | None: ...  # noqa: N802
    def toString(self) -> str: ...  # noqa: N802
    def getClass(self) -> Any: ...  # noqa: N802
    def getStackTrace(self) -> Any: ...  # noqa: N802
    def getCause(self) -> Thrown | None: ...  # noqa: N802


def refuse_other_version() -> None:
    """Prepared plans call what only one version of Spark has."""
    if pyspark.__version__ != PINNED:
        raise OperationError(
            f"prepared plans need PySpark {PINNED}, and this is {pyspark.__version__}. Install "
            "that version, or set flow.prepared = false: batches then run by Spark's public API."
        )


def each(sequence: ScalaSeq[T]) -> list[T]:
    """The items of a sequence of Scala's."""
    return [sequence.apply(index) for index in range(sequence.size())]


def analysed_plan(frame: DataFrame) -> PlanNode:
    """The plan of a DataFrame with every name and type resolved."""
    return cast(PlanNode, _execution(frame).analyzed())


def optimised_plan(frame: DataFrame) -> PlanNode:
    """The same after Spark's optimiser."""
    return cast(PlanNode, _execution(frame).optimizedPlan())


def selected(
    frame: DataFrame, child: PlanNode, columns: Sequence[tuple[str, Expression]], more: Expression
) -> DataFrame:
    """A DataFrame of named expressions over a part of another one's plan, and one column of it."""
    session = frame.sparkSession
    jvm = _jvm(session)
    items = jvm.java.util.ArrayList()
    for name, expression in columns:
        items.add(_alias(jvm, name, expression))
    items.add(more)
    sequence = jvm.PythonUtils.toSeq(items)
    project = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(sequence, child)
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, project)
    return DataFrame(rows, session)


def _alias(jvm: Any, name: str, expression: Expression) -> Any:
    named = jvm.org.apache.spark.sql.catalyst.expressions.NamedExpression
    empty = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
    return jvm.org.apache.spark.sql.catalyst.expressions.Alias(
        expression, name, named.newExprId(), empty, jvm.scala.Option.empty(), empty
    )


def without_with(frame: DataFrame) -> DataFrame:
    """The same rows, with what WITH names put where it is read."""
    plan = analysed_plan(frame)
    if plan.nodeName() != "WithCTE":
        return frame
    session = frame.sparkSession
    jvm = _jvm(session)
    inlined = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False).apply(plan)
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, inlined)
    return DataFrame(rows, session)


def item_of(expression: Expression) -> int:
    """Which item of an array is taken."""
    return int(expression.ordinal().value())


def has_value(session: SparkSession, column: Expression, value: Any) -> Expression:
    """Whether a column has one of the values that a pivot lists, null being one of them."""
    catalyst = _jvm(session).org.apache.spark.sql.catalyst.expressions
    if isinstance(value, int | float) and column.dataType().typeName() not in ("date", "timestamp"):
        cast_to = getattr(catalyst, "Cast$")
        literal = getattr(getattr(catalyst, "Literal$"), "MODULE$").apply(value)
        wanted = getattr(cast_to, "MODULE$").apply(literal, column.dataType(), False)
    else:
        wanted = catalyst.Literal.create(value, column.dataType())
    return cast(Expression, catalyst.EqualNullSafe(column, wanted))


def written_cast(session: SparkSession) -> Any:
    """The tag of casts that a user wrote, unlike those that Spark adds."""
    return _jvm(session).org.apache.spark.sql.catalyst.expressions.Cast.USER_SPECIFIED_CAST()


def jvm_runs() -> bool:
    """Whether this process has started a JVM; there is one at most."""
    return SparkContext._gateway is not None


def end_jvm() -> None:
    """End the JVM and wait for it: it may have something to write."""
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    process.stdin.close()
    process.wait()


def forget_batches_of(function: Any) -> None:
    """Let go of what foreachBatch calls. Otherwise a thread of Py4J holds it to the very end."""
    gateway: Any = SparkContext._gateway
    for proxy in list(gateway.gateway_property.pool.dict.values()):
        if getattr(proxy, "func", None) == function:
            proxy.func = None


def class_path(session: SparkSession) -> str:
    """The class path that the JVM was started with."""
    return str(_jvm(session).java.lang.System.getProperty("java.class.path"))


def thrown_by(error: BaseException) -> Thrown | None:
    """What a task threw, of the error that Python sees; None if there is no such thing."""
    if isinstance(error, CapturedException):
        return cast("Thrown | None", error._origin)
    if isinstance(error, Py4JJavaError):
        thrown: Any = error.java_exception
        if thrown is not None and thrown.getClass().getName() == "org.apache.spark.SparkException":
            thrown = thrown.getCause()
        return cast("Thrown | None", thrown)
    return None


class OtherSparkError(Exception):
    """This version of Spark lacks what was asked for."""


class ListenerBus:
    """Where a session's streaming queries post their events; its UI and listeners hear them."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm = _jvm(session)
        self._streams = session._jsparkSession.streams()
        self._package = self._jvm.org.apache.spark.sql.streaming

    def started(self, query: tuple[str, str], name: str, timestamp: str) -> None:
        """`query` is its id, the same for all its runs, and the id of this run."""
        self._post("QueryStartedEvent", *self._ids(query), name, timestamp)

    def progress(self, json: str) -> None:
        """A finished batch, in the JSON of a StreamingQueryProgress."""
        companion = getattr(getattr(self._package, "StreamingQueryProgress$"), "MODULE$")
        self._post("QueryProgressEvent", companion.fromJson(json))

    def terminated(self, query: tuple[str, str], error: str | None) -> None:
        self._post("QueryTerminatedEvent", *self._ids(query), self._jvm.scala.Option.apply(error))

    def _ids(self, query: tuple[str, str]) -> list[Any]:
        return [self._jvm.java.util.UUID.fromString(one) for one in query]

    def _post(self, event: str, *facts: Any) -> None:
        kind = getattr(self._package, f"StreamingQueryListener${event}")
        self._streams.postListenerEvent(kind(*facts))


@contextmanager
def unlike_this_version() -> Iterator[None]:
    """Whatever another version of Spark answers to calls of its private classes."""
    try:
        yield
    except (Py4JError, AttributeError, TypeError) as error:
        raise OtherSparkError(f"{type(error).__name__}: {error}") from error


def refuse_mode(frame: DataFrame, mode: str) -> None:
    """Raise Spark's own error if a streaming query cannot run in this output mode."""
    jvm = _jvm(frame.sparkSession)
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    output = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker.checkForStreaming(_execution(frame).analyzed(), output)


def node_names(frame: DataFrame) -> set[str]:
    """The kinds of operators in the analysed plan of a DataFrame."""
    left, found = [analysed_plan(frame)], set()
    while left:
        node = left.pop()
        found.add(node.nodeName())
        left += each(node.children())
    return found


def read_formats(frame: DataFrame) -> set[str]:
    """The names of the formats that a streaming DataFrame reads, as far as Spark knows them."""
    leaves: list[Any] = each(_execution(frame).analyzed().collectLeaves())
    return {str(one.sourceName()) for one in leaves if one.nodeName() == "StreamingRelationV2"}


def dropped_rows(query: StreamingQuery) -> int:
    """Rows of the batch at work that its watermark dropped, of all stateful operators."""
    left: list[Any] = [query._jsq.streamingQuery().lastExecution().executedPlan()]
    found = 0
    while left:
        node = left.pop()
        metrics = node.metrics()
        if metrics.contains(DROPPED):
            found += int(metrics.apply(DROPPED).value())
        left += each(node.children())
    return found


class PlannedRdd:
    """A planned DataFrame as an RDD whose leaf gets other rows for every run."""

    def __init__(self, leaf: DataFrame, result: DataFrame, parallelism: int) -> None:
        self._context: Any = leaf.sparkSession.sparkContext
        frame: Any = result._jdf
        plan = _execution(result).executedPlan()
        if "Exchange hashpartitioning" in plan.toString():
            raise TapelineBug(f"a step needs a shuffle and cannot be prepared:\n{plan.toString()}")
        self._rdd = frame.toArrowBatchRdd(plan).toJavaRDD()
        self._partitions = _partitions(leaf)
        run = list(self._rdd.rdd().partitions())
        if len(run) != parallelism or not all(map(_same, run, self._partitions)):
            raise TapelineBug(f"a step does not keep its partitions:\n{plan.toString()}")
        self._empty = self._partitions[0].values().take(0)

    @property
    def parallelism(self) -> int:
        return len(self._partitions)

    def run(self, batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
        """One Spark job with one task for each batch."""
        tasks = len(batches)
        self._fill(self._payloads(batches), tasks)
        try:
            served = self._context._jvm.PythonRDD.runJob(
                self._context._jsc.sc(), self._rdd, list(range(tasks))
            )
            with _load_from_socket(served, NoOpSerializer()) as payloads:
                return [pa.ipc.read_record_batch(one, schema) for one in payloads]
        finally:
            self._fill(self._empty, tasks)

    def _payloads(self, batches: list[pa.RecordBatch]) -> Any:
        """Arrow batches in the JVM, as a Scala sequence of bytes."""
        with NamedTemporaryFile(dir=self._context._temp_dir) as file:
            with pa.ipc.new_stream(file, batches[0].schema) as stream:
                for batch in batches:
                    stream.write_batch(batch)
            file.flush()
            return self._context._jvm.PythonSQLUtils.readArrowStreamFromFile(file.name).toSeq()

    def _fill(self, payloads: Any, tasks: int) -> None:
        """One payload for each of the first partitions of the leaf."""
        for number, partition in enumerate(self._partitions[:tasks]):
            getattr(partition, "values_$eq")(payloads.slice(number, number + 1))


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """The Arrow types in which Spark returns rows of this schema."""
    if "timezone" not in signature(to_arrow_schema).parameters:  # before Spark 4.2
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)


def _partitions(leaf: DataFrame) -> list[Any]:
    """The partitions that hold a leaf's data, in order."""
    rdd = _execution(leaf).logical().rdd()
    while rdd.dependencies().size():
        rdd = rdd.dependencies().apply(0).rdd()
    return list(rdd.partitions())


def _same(one: Any, other: Any) -> bool:
    return bool(one.equals(other))


def _execution(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution()


def _jvm(session: SparkSession) -> Any:
    return session.sparkContext._jvm
