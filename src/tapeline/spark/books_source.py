"""The books as a source of Spark's: `spark.read` and `spark.readStream` of format "tapeline".

Spark calls these classes in Python processes of its own, so they carry texts and numbers and open
the books where they are asked. Everything is read through books/: nothing is folded here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tapeline.errors import OperationError, QuestionError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from tapeline.books import Books
    from tapeline.books.reader import ReadPoint

OPTIONS = ("project", "pipeline", "root", "table", "path", "as_reported", "changes")
OWN = "pipeline.py"
# About this many rows per task; a batch is never split.
ROWS_PER_TASK, MAX_TASKS = 200_000, 64
Offset = dict[str, Any]
BEGINNING: Offset = {"epoch": 0, "batch": 0, "hash": ""}


@dataclass(frozen=True)
class Asked:
    """What a query asks for: where the books are, what of them, and when."""

    name: str
    project: str = "."
    pipeline: str = OWN
    root: str = ""
    as_reported: str = ""
    changes: bool = False

    @staticmethod
    def of(options: Mapping[str, str]) -> Asked:
        """From the options of a reader; unknown ones are refused."""
        said = {key.lower(): value for key, value in options.items()}
        for key in said:
            if key not in OPTIONS:
                raise QuestionError(f"unknown option '{key}'.{did_you_mean(key, OPTIONS)}")
        name = said.get("table") or said.get("path")
        if not name:
            raise QuestionError(
                "name what to read: .load('NAME') or .option('table', 'NAME'), where NAME is a "
                "table, summary, view or reference of the pipeline."
            )
        changes = said.get("changes", "false").lower()
        if changes not in ("true", "false"):
            raise QuestionError(f"option 'changes' must be true or false, not '{changes}'.")
        given = {key: said[key] for key in ("project", "pipeline", "root", "as_reported")
                 if key in said}  # fmt: skip
        return Asked(name=name, changes=changes == "true", **given)

    def books(self) -> Books:
        from tapeline.books import Books
        from tapeline.plan import load_pipeline, resolve
        from tapeline.settings import load_settings

        settings = load_settings(Path(self.project).absolute())
        if self.root:
            settings = replace(settings, root=Path(self.root).absolute())
        plan = resolve(load_pipeline(self.pipeline, settings))
        return Books(plan, settings.home(plan.name))

    def cut(self, books: Books) -> ReadPoint:
        """The published batch that is asked for."""
        from tapeline.declare.duration import parse_moment

        return books.cut(parse_moment(self.as_reported) if self.as_reported else None)


class BooksSource(DataSource):
    """`format("tapeline")`. Options: project, pipeline, root, table, as_reported, changes."""

    @classmethod
    def name(cls) -> str:
        return "tapeline"

    def schema(self) -> StructType:
        from tapeline.books.extract import extract_shape

        asked = Asked.of(self.options)
        books = asked.books()
        cut = asked.cut(books)
        return from_arrow_schema(extract_shape(books, asked.name, cut, asked.changes))

    def reader(self, schema: StructType) -> BooksReader:
        return BooksReader(Asked.of(self.options))

    def streamReader(self, schema: StructType) -> ChangesReader:  # noqa: N802 - Spark's own name
        asked = Asked.of(self.options)
        if not asked.changes or asked.as_reported:
            raise QuestionError(
                "a stream reads published changes: add .option('changes', 'true'), and leave out "
                "'as_reported'."
            )
        return ChangesReader(asked)


@dataclass
class Batches(InputPartition):
    """The batches that one task reads, and the one at which the books are read."""

    first: int
    last: int
    cut: int


class BooksReader(DataSourceReader):
    """A table, summary, view or reference at one published batch, or all changes up to it."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[Batches]:
        asked = self._asked
        books = asked.books()
        cut = asked.cut(books)
        if asked.changes:
            return _by_rows(books, asked.name, 1, cut.batch)
        if asked.name not in books.plan.pipeline.tables:
            return [Batches(0, cut.batch, cut.batch)]
        rows = sum(cut.commit.total(asked.name).verdicts.values())
        tasks = min(-(-rows // ROWS_PER_TASK), MAX_TASKS, cut.batch) or 1
        ends = [cut.batch * n // tasks for n in range(tasks + 1)]
        return [Batches(a + 1, b, cut.batch) for a, b in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from tapeline.books.extract import extract

        assert isinstance(partition, Batches)
        books = self._asked.books()
        if self._asked.changes:
            return _changes(books, self._asked.name, partition)
        batches = (partition.first, partition.last)
        rows = extract(books, self._asked.name, books.at(partition.cut), batches)
        return iter(rows.to_batches())


class ChangesReader(DataSourceStreamReader):
    """The changes of a table or summary, each published batch once.

    An offset is the last batch that was read, with its epoch and the hash of its commits row:
    books that were restored to before it have another batch of that number, or none.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's own names, here and below
        return BEGINNING

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        books = self._asked.books()
        start = start or BEGINNING  # Spark before 4.2 does not say it
        _refuse_other_books(books, start)
        batch = books.cut().batch
        return _offset(books, batch) if batch > start["batch"] else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[Batches]:
        books = self._asked.books()
        _refuse_other_books(books, start)
        _refuse_other_books(books, end)
        return _by_rows(books, self._asked.name, start["batch"] + 1, end["batch"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Batches)
        return _changes(self._asked.books(), self._asked.name, partition)


def _changes(books: Books, name: str, wanted: Batches) -> Iterator[pa.RecordBatch]:
    from tapeline.books.extract import extract_changes

    return iter(extract_changes(books, name, wanted.first, wanted.last).to_batches())


def _by_rows(books: Books, name: str, first: int, last: int) -> list[Batches]:
    """Batches in groups of about as many rows as a task should read; none without rows."""
    from tapeline.books.commits import read_commits

    groups: list[Batches] = []
    count = 0
    for row in read_commits(books.layout.commits, first, last) if first <= last else []:
        rows = row.commit.tables[name].rows if row.decides and name in row.commit.tables else 0
        if not rows:
            continue
        if groups and count + rows <= ROWS_PER_TASK:
            groups[-1].last = row.batch
            count += rows
        else:
            groups.append(Batches(row.batch, row.batch, last))
            count = rows
    return groups


def _offset(books: Books, batch: int) -> Offset:
    from tapeline.books.commits import read_commits

    rows = [row for row in read_commits(books.layout.commits, batch, batch) if row.publishes]
    return {"epoch": rows[0].epoch, "batch": batch, "hash": rows[0].hash} if rows else BEGINNING


def _refuse_other_books(books: Books, offset: Offset) -> None:
    if offset["batch"] and _offset(books, offset["batch"]) != offset:
        raise OperationError(
            f"OTHER_BOOKS: this stream has read up to batch {offset['batch']} of epoch "
            f"{offset['epoch']}, and the books in {books.layout.home} have no such batch. They "
            "were restored from a backup, or they are other books. Read them from the beginning: "
            "give the stream a new checkpointLocation and an empty target."
        )
