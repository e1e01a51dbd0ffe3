"""A prepared step: planned by Spark once, executed again for every batch.

Planning a step of fifty expressions costs Spark a few hundred milliseconds, running it over two
hundred rows a few dozen. So a step is planned once, on a leaf without data, and each batch
exchanges that leaf in the physical plan. What the plan holds besides the leaf stays, broadcast
references included. A plan with a shuffle cannot be run twice (its shuffle files are kept), so it
is refused: steps are projections, filters, explodes and left joins to references, and have none.

This uses Spark's internal classes of exactly the pinned version, as allowed.py and summarise.py do
to read plans; a test compares its results with the same step run the ordinary way.
"""

from __future__ import annotations

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
        self._session = session
        self._parallelism = parallelism
        # One row of nulls: Spark folds an empty leaf away.
        self._nothing = pa.table([pa.nulls(1, f.type) for f in leaf_schema], schema=leaf_schema)
        leaf = session.createDataFrame(self._nothing)
        self._leaf_json = leaf.schema.json()
        result = build(leaf)
        self.schema: StructType = result.schema
        self.arrow_schema: pa.Schema = _nullable(
            to_arrow_schema(result.schema, timezone="UTC", prefers_large_types=False)
        )
        self._frame: Any = result._jdf
        plan = self._frame.queryExecution().executedPlan()
        path = _path_to(plan, _rdd_of(leaf).id())
        if "Exchange hashpartitioning" in plan.toString() or not path:
            raise TapelineBug(f"a step needs a shuffle and cannot be prepared:\n{plan.toString()}")
        # What stays the same is asked for once: every call into the JVM costs a round trip.
        scan = path[-1][0]
        self._scan = (
            scan.output(),
            scan.name(),
            scan.outputPartitioning(),
            scan.outputOrdering(),
            scan.stream(),
        )
        self._parents = [(node, node.children(), index) for node, index in reversed(path[:-1])]

    def run(self, rows: pa.Table) -> pa.Table:
        """The step over these rows, in their order: one Spark job."""
        if rows.num_rows == 0:
            return self.arrow_schema.empty_table()
        plan = self._bind(self._rdd(rows))
        jvm: Any = self._session.sparkContext._jvm
        served = jvm.PythonRDD.collectAndServe(self._frame.toArrowBatchRdd(plan))
        with _load_from_socket(served, NoOpSerializer()) as payloads:
            batches = [pa.ipc.read_record_batch(p, self.arrow_schema) for p in payloads]
        return pa.Table.from_batches(batches, self.arrow_schema)

    def warm(self) -> None:
        """Compile the generated code and broadcast the references, ahead of the first batch."""
        self.run(self._nothing)

    def _rdd(self, rows: pa.Table) -> Any:
        """Arrow rows as an RDD of the leaf's rows: createDataFrame without its inspections."""
        jvm: Any = self._session.sparkContext._jvm
        # Nodes of a plan take the session from the thread that makes them.
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(self._session._jsparkSession)
        tasks = max(1, min(self._parallelism, rows.num_rows // ROWS_PER_TASK))
        size = -(-rows.num_rows // tasks)
        with NamedTemporaryFile(dir=self._session.sparkContext._temp_dir) as file:
            with pa.ipc.new_stream(file, rows.schema) as stream:
                for batch in rows.combine_chunks().to_batches(max_chunksize=size):
                    stream.write_batch(batch)
            file.flush()
            batches = jvm.PythonSQLUtils.readArrowStreamFromFile(file.name)
        frame = jvm.PythonSQLUtils.toDataFrame(
            batches, self._leaf_json, self._session._jsparkSession
        )
        return frame.queryExecution().logical().rdd()

    def _bind(self, rdd: Any) -> Any:
        """The physical plan with another leaf."""
        jvm: Any = self._session.sparkContext._jvm
        output, name, *rest = self._scan
        node = jvm.org.apache.spark.sql.execution.RDDScanExec(output, rdd, name, *rest)
        for parent, children, index in self._parents:
            node = parent.withNewChildren(children.updated(index, node))
        return node


def _rdd_of(leaf: DataFrame) -> Any:
    return leaf._jdf.queryExecution().logical().rdd()


def _path_to(node: Any, rdd_id: int) -> list[tuple[Any, int]]:
    """The nodes from the root of a physical plan to the scan of one RDD."""
    if node.getClass().getSimpleName() == "RDDScanExec" and node.rdd().id() == rdd_id:
        return [(node, -1)]
    children = node.children()
    for index in range(children.size()):
        below = _path_to(children.apply(index), rdd_id)
        if below:
            return [(node, index), *below]
    return []


def _nullable(schema: pa.Schema) -> pa.Schema:
    """The same schema with every field nullable: nulls in unions must not be refused."""
    return pa.schema([pa.field(f.name, _nullable_type(f.type)) for f in schema])


def _nullable_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _nullable_type(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_nullable_type(kind.value_type))
    return kind
