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

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tapeline.flow.steps import StepFailedError
from tapeline.spark.failures import condition_of, of_computation, words_of
from tapeline.spark.internals import PlannedRdd, arrow_schema_of

# Below this many rows one task is faster than two.
ROWS_PER_TASK = 4_000


class Prepared:
    """A function of one DataFrame, analysed at once and planned once, when asked or first run."""

    def __init__(
        self,
        session: SparkSession,
        leaf_schema: pa.Schema,
        build: Callable[[DataFrame], DataFrame],
        parallelism: int = 2,
    ) -> None:
        self._running = threading.Lock()
        # A row of nulls in every partition: Spark folds an empty leaf away.
        self._nothing = pa.table([pa.nulls(1, f.type) for f in leaf_schema], schema=leaf_schema)
        self._leaf = session.createDataFrame(pa.concat_tables([self._nothing] * parallelism))
        self._result = build(self._leaf)
        self._parallelism = parallelism
        self.schema: StructType = self._result.schema
        self.arrow_schema: pa.Schema = _nullable(arrow_schema_of(self.schema))
        self._planned: PlannedRdd | None = None

    def plan(self) -> PlannedRdd:
        """Plan what was analysed, unless that was done."""
        with self._running:
            if self._planned is None:
                self._planned = PlannedRdd(self._leaf, self._result, self._parallelism)
            return self._planned

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
        rows = self._of_leaf(rows)
        tasks = max(1, min(self._parallelism, rows.num_rows // ROWS_PER_TASK))
        size = -(-rows.num_rows // tasks)
        planned = self.plan()
        with self._running:
            parts = rows.combine_chunks().to_batches(max_chunksize=size)
            batches = planned.run(parts, self.arrow_schema)
        return pa.Table.from_batches(batches, self.arrow_schema)

    def _of_leaf(self, rows: pa.Table) -> pa.Table:
        """The columns that the leaf has, in its order; older rows may lack some."""
        for field in self._nothing.schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(self._nothing.column_names)

    def warm(self) -> None:
        """Compile the generated code and broadcast the references, ahead of the first batch."""
        self.run(self._nothing)


class PreparedLater:
    """A function that few batches need: prepared when it is first asked for."""

    def __init__(self, make: Callable[[], Prepared]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: Prepared | None = None

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._prepared().arrow_schema

    def run(self, rows: pa.Table) -> pa.Table:
        return self._prepared().run(rows)

    def warm(self) -> None:
        self._prepared().warm()

    def _prepared(self) -> Prepared:
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The same schema with every field nullable: nulls in unions must not be refused."""
    return pa.schema([pa.field(f.name, _nullable_type(f.type)) for f in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _nullable_type(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_nullable_type(kind.value_type))
    return kind
