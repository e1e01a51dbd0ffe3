"""Rows given to a step by Spark's public API alone: `flow.prepared = false`.

The leaf of the step is a Python data source that reads Arrow files of a temporary folder. Each
batch writes its rows there and asks the same DataFrame again, so nothing private is called. Python
processes of Spark's read the files, which makes a small batch several times slower.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

FORMAT = "tapeline_leaf"


class LeafSource(DataSource):
    """`format("tapeline_leaf")`: the files of a folder, one task each."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> LeafReader:
        return LeafReader(self.options["path"], int(self.options["tasks"]))


class LeafReader(DataSourceReader):
    """Reads what is in the files when a task runs."""

    def __init__(self, folder: str, tasks: int) -> None:
        self._folder = folder
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        file = _file(Path(self._folder), partition.value)
        if not file.exists():
            return
        with pa.ipc.open_file(file) as rows:
            for number in range(rows.num_record_batches):
                yield rows.get_batch(number)


class FileLeaf:
    """A leaf that gets other rows for every run, and the DataFrame that is asked for them."""

    def __init__(self, session: SparkSession, schema: pa.Schema, parallelism: int) -> None:
        self._tasks = parallelism
        self._folder = Path(tempfile.mkdtemp(prefix="tapeline-leaf-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        session.dataSource.register(LeafSource)
        reader = session.read.format(FORMAT).schema(from_arrow_schema(schema))
        self.frame = reader.option("tasks", str(parallelism)).load(str(self._folder))
        self._result: DataFrame | None = None

    @property
    def parallelism(self) -> int:
        return self._tasks

    def plan(self, result: DataFrame) -> FileLeaf:
        """`result` is what a step makes of the leaf."""
        self._result = result
        return self

    def run(self, batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
        """One Spark job with one task for each batch."""
        assert self._result is not None
        for number in range(self.parallelism):
            file = _file(self._folder, number)
            if number < len(batches):
                with pa.ipc.new_file(file, batches[number].schema) as writer:
                    writer.write_batch(batches[number])
            else:
                file.unlink(missing_ok=True)
        found: list[pa.RecordBatch] = self._result.toArrow().cast(schema).to_batches()
        return found


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number}.arrow"
