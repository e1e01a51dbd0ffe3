"""A prepared step: planned by Spark once, executed again for every batch.

Planning a step of fifty expressions and generating its code costs Spark a few hundred
milliseconds, running it over two hundred rows a dozen. So a step becomes an RDD once, on a leaf
without data, and each batch puts its rows into the partitions of that leaf. What the plan holds
besides the leaf stays, generated code and broadcast references included. A plan with a shuffle
cannot be run twice (its shuffle files are kept), so it is refused: steps are projections, filters,
explodes and left joins to references, and have none.

This uses Spark's internal classes of exactly the pinned version, as plan_rules.py and shares.py do
to read plans; a test compares its results with the same step run the ordinary way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

from tapeline.errors import TapelineBug
from tapeline.flow.steps import StepFailedError
from tapeline.spark.failures import condition_of, of_computation, words_of

# Below this many rows one task is faster than two.
ROWS_PER_TASK = 4_000


class Prepared:
    """A function of one DataFrame, planned once."""

    def __init__(
        self,
        session: SparkSession,
        leaf_schema: pa.Schema,
        build: Callable[[DataFrame], DataFrame],
        parallelism: int = 2,
    ) -> None:
        self._context: Any = session.sparkContext
        self._jvm: Any = self._context._jvm
        self._running = threading.Lock()
        # A row of nulls in every partition: Spark folds an empty leaf away.
        self._nothing = pa.table([pa.nulls(1, f.type) for f in leaf_schema], schema=leaf_schema)
        leaf = session.createDataFrame(pa.concat_tables([self._nothing] * parallelism))
        result = build(leaf)
        self.schema: StructType = result.schema
        self.arrow_schema: pa.Schema = _nullable(
            to_arrow_schema(result.schema, timezone="UTC", prefers_large_types=False)
        )
        frame: Any = result._jdf
        plan = frame.queryExecution().executedPlan()
        if "Exchange hashpartitioning" in plan.toString():
            raise TapelineBug(f"a step needs a shuffle and cannot be prepared:\n{plan.toString()}")
        self._result = frame.toArrowBatchRdd(plan).toJavaRDD()
        self._partitions = _partitions(leaf)
        run = list(self._result.rdd().partitions())
        if len(run) != parallelism or not all(map(_same, run, self._partitions)):
            raise TapelineBug(f"a step does not keep its partitions:\n{plan.toString()}")
        self._empty = self._partitions[0].values().take(0)

    def run(self, rows: pa.Table) -> pa.Table:
        """The step over these rows, in their order: one Spark job."""
        try:
            return self._run(rows)
        except Exception as error:
            if of_computation(error):
                raise StepFailedError(condition_of(error), words_of(error)) from error
            raise

    def _run(self, rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return self.arrow_schema.empty_table()
        rows = self._leaf(rows)
        tasks = max(1, min(len(self._partitions), rows.num_rows // ROWS_PER_TASK))
        size = -(-rows.num_rows // tasks)
        with self._running:
            self._fill(self._payloads(rows.combine_chunks().to_batches(max_chunksize=size)), tasks)
            try:
                served = self._jvm.PythonRDD.runJob(
                    self._context._jsc.sc(), self._result, list(range(tasks))
                )
                with _load_from_socket(served, NoOpSerializer()) as payloads:
                    batches = [pa.ipc.read_record_batch(p, self.arrow_schema) for p in payloads]
            finally:
                self._fill(self._empty, tasks)
        return pa.Table.from_batches(batches, self.arrow_schema)

    def _leaf(self, rows: pa.Table) -> pa.Table:
        """The columns that the leaf has, in its order; older rows may lack some."""
        for field in self._nothing.schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(self._nothing.column_names)

    def warm(self) -> None:
        """Compile the generated code and broadcast the references, ahead of the first batch."""
        self.run(self._nothing)

    def _payloads(self, batches: list[pa.RecordBatch]) -> Any:
        """Arrow batches in the JVM, as a Scala sequence of bytes."""
        with NamedTemporaryFile(dir=self._context._temp_dir) as file:
            with pa.ipc.new_stream(file, batches[0].schema) as stream:
                for batch in batches:
                    stream.write_batch(batch)
            file.flush()
            return self._jvm.PythonSQLUtils.readArrowStreamFromFile(file.name).toSeq()

    def _fill(self, payloads: Any, tasks: int) -> None:
        """One payload for each of the first partitions of the leaf."""
        for number, partition in enumerate(self._partitions[:tasks]):
            getattr(partition, "values_$eq")(payloads.slice(number, number + 1))


def _same(one: Any, other: Any) -> bool:
    return bool(one.equals(other))


def _partitions(leaf: DataFrame) -> list[Any]:
    """The partitions that hold a leaf's data, in order."""
    rdd = leaf._jdf.queryExecution().logical().rdd()
    while rdd.dependencies().size():
        rdd = rdd.dependencies().apply(0).rdd()
    return list(rdd.partitions())


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The same schema with every field nullable: nulls in unions must not be refused."""
    return pa.schema([pa.field(f.name, _nullable_type(f.type)) for f in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _nullable_type(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_nullable_type(kind.value_type))
    return kind
