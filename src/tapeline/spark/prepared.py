"""A prepared step: planned by Spark once, executed again for every batch.

Planning a step of fifty expressions and generating its code costs Spark a few hundred
milliseconds, running it over two hundred rows a dozen. So a step becomes an RDD once, on a leaf
without data, and each batch puts its rows into the partitions of that leaf. What the plan holds
besides the leaf stays, generated code and broadcast references included. A plan with a shuffle
cannot be run twice (its shuffle files are kept), so it is refused: steps are projections, filters,
explodes and left joins to references, and have none.

How rows get into the leaf is the business of internals.py; a test compares the results with the
same step run the ordinary way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tapeline.flow.progress import batch_at_work
from tapeline.flow.steps import StepFailedError
from tapeline.spark.failures import condition_of, of_computation, words_of
from tapeline.spark.file_leaf import FileLeaf
from tapeline.spark.internals import PlannedRdd, arrow_schema_of

# Below this many rows one task is faster than two.
ROWS_PER_TASK = 4_000
PARALLELISM = 2


class Planned(Protocol):
    """A step that Spark has planned, whose leaf gets other rows for every run."""

    @property
    def parallelism(self) -> int: ...

    def run(self, batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]: ...


class Prepared:
    """A function of one DataFrame, planned once."""

    def __init__(
        self,
        session: SparkSession,
        leaf_schema: pa.Schema,
        build: Callable[[DataFrame], DataFrame],
        name: str = "a step",
        public: bool = False,
    ) -> None:
        """`public`: run every batch by Spark's public API alone."""
        self._running = threading.Lock()
        self._context = session.sparkContext
        self._name = name
        # A row of nulls in every partition: Spark folds an empty leaf away.
        self._nothing = pa.table([pa.nulls(1, f.type) for f in leaf_schema], schema=leaf_schema)
        files = FileLeaf(session, leaf_schema, PARALLELISM) if public else None
        leaf = files.frame if files else self._leaf_of_nulls(session)
        result = build(leaf)
        self.schema: StructType = result.schema
        self.arrow_schema: pa.Schema = _nullable(arrow_schema_of(result.schema))
        self._planned: Planned = (
            files.plan(result) if files else PlannedRdd(leaf, result, PARALLELISM)
        )

    def _leaf_of_nulls(self, session: SparkSession) -> DataFrame:
        return session.createDataFrame(pa.concat_tables([self._nothing] * PARALLELISM))

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
        tasks = max(1, min(self._planned.parallelism, rows.num_rows // ROWS_PER_TASK))
        size = -(-rows.num_rows // tasks)
        # What Spark's UI shows of a job.
        self._context.setJobDescription(f"{self._name}, batch {batch_at_work.get()}")
        with self._running:
            parts = rows.combine_chunks().to_batches(max_chunksize=size)
            batches = self._planned.run(parts, self.arrow_schema)
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


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The same schema with every field nullable: nulls in unions must not be refused."""
    return pa.schema([pa.field(f.name, _nullable_type(f.type)) for f in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _nullable_type(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_nullable_type(kind.value_type))
    return kind
