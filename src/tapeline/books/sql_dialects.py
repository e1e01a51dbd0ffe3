"""Where DuckDB and Spark differ when they read the books by themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from tapeline.books.exact import Kind, sums_of
from tapeline.books.layout import Layout
from tapeline.books.measures import Engine
from tapeline.books.reader import ReadPoint
from tapeline.store.delta_files import read_files
from tapeline.store.duckdb import connect, quoted

NO_CLOCK = "cast('-9223372036854775808' as bigint)"  # before the first record


class Dialect(Protocol):
    """How an engine names columns, finds the tables, and knows what is published."""

    name: Engine
    notes: Sequence[str]  # what whoever reads the text should know
    settings: Sequence[str]

    def quoted(self, name: str) -> str:
        """A name as SQL writes it."""
        ...

    def stored(self, folder: Path, shape: pa.Schema) -> str:
        """A table's rows, as SQL that follows FROM."""
        ...

    def published(self, clocks: Sequence[str], versions: Sequence[str]) -> str:
        """A SELECT of one row: the last published batch, the clocks, the references' versions."""
        ...

    def micros(self, column: str, kind: pa.DataType) -> str:
        """A moment in microseconds since 1970."""
        ...

    def sums(self, rows: str, kinds: Mapping[str, Kind], over: str = "") -> dict[str, str]:
        """Columns of stored rows, each with its sum: one that fails no query, however large."""
        ...


class DuckDBSnapshot:
    """DuckDB reads the files that were live at a cut: its Delta extension is not needed."""

    name: Engine = "duckdb"
    settings: Sequence[str] = ("set TimeZone = 'UTC'",)

    def __init__(self, cut: ReadPoint) -> None:
        self._cut = cut
        moment = f", published {cut.at.isoformat()}" if cut.at else ""
        self.notes: Sequence[str] = (
            f"A snapshot of batch {cut.batch}{moment}: later batches are missing. Create it again",
            "after a run. Its files are kept for housekeeping.removed_files_hours",
            "hours after they were replaced.",
        )

    def quoted(self, name: str) -> str:
        return quoted(name)

    def stored(self, folder: Path, shape: pa.Schema) -> str:
        files = ", ".join(_text(path) for path, _, _ in read_files(folder))
        if files:
            return f"read_parquet([{files}])"
        with connect() as connection:
            connection.register("empty", shape.empty_table())
            described = connection.execute("describe empty").fetchall()
        columns = ", ".join(f"cast(null as {row[1]}) as {quoted(row[0])}" for row in described)
        return f"(select {columns} where false)"

    def published(self, clocks: Sequence[str], versions: Sequence[str]) -> str:
        at = f"cast({_text(self._cut.at.isoformat())} as timestamptz)" if self._cut.at else "null"
        known, pinned = self._cut.commit.clocks, self._cut.commit.references
        values = [f"cast({self._cut.batch} as bigint) as batch", f'{at} as "at"']
        for name in clocks:
            clock = f"cast({known[name]} as bigint)" if name in known else NO_CLOCK
            values.append(f"{clock} as clock_{name}")
        for name in versions:
            version = pinned.get(name, "null")
            values.append(f"cast({version} as bigint) as version_{name}")
        return "select " + ", ".join(values)

    def micros(self, column: str, kind: pa.DataType) -> str:
        # A date has no zone; a moment must not be taken through the reader's own.
        moment = column if _has_zone(kind) else f"cast({column} as timestamp)"
        return f"epoch_us({moment})"

    def sums(self, rows: str, kinds: Mapping[str, Kind], over: str = "") -> dict[str, str]:
        with connect() as connection:
            return sums_of(connection, rows, kinds, over)


class SparkLive:
    """Spark reads the Delta tables as they are when it is asked."""

    name: Engine = "spark"
    notes: Sequence[str] = (
        "Live: every query sees the last published batch. Spark needs Delta: the jars delta-spark",
        "and delta-storage, spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog.",
    )
    settings: Sequence[str] = (
        "set time zone 'UTC'",
        "set spark.sql.ansi.doubleQuotedIdentifiers = true",
    )

    def __init__(self, layout: Layout) -> None:
        self._commits = self.stored(layout.commits)

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def stored(self, folder: Path, shape: pa.Schema | None = None) -> str:
        return f"delta.{self.quoted(str(folder))}"

    def published(self, clocks: Sequence[str], versions: Sequence[str]) -> str:
        values = ["last.batch", "last.`at`"]
        values += [
            f"coalesce({_from_body('clocks', name)}, {NO_CLOCK}) as clock_{name}" for name in clocks
        ]
        values += [f"{_from_body('references', name)} as version_{name}" for name in versions]
        last = (
            "select coalesce(max(batch), 0) as batch, max(`at`) as `at` "
            f"from {self._commits} where event = 'published'"
        )
        return (
            f"select {', '.join(values)} from ({last}) as last "
            f"left join {self._commits} as decided "
            "on decided.batch = last.batch and decided.event = 'decided'"
        )

    def micros(self, column: str, kind: pa.DataType) -> str:
        return f"unix_micros(cast({column} as timestamp))"

    def sums(self, rows: str, kinds: Mapping[str, Kind], over: str = "") -> dict[str, str]:
        return {column: _spark_sum(column, kind) + over for column, kind in kinds.items()}


def _spark_sum(column: str, kind: Kind) -> str:
    """Spark has 38 digits and no more: a sum that needs them on its way is NULL."""
    if kind.wide:
        return f"try_sum({column})"
    return f"sum(cast({column} as decimal({kind.digits},0)))" if kind.whole else f"sum({column})"


def _from_body(part: str, name: str) -> str:
    """A number of a decided batch's row; names are letters, digits and '_' by declaration."""
    return f"cast(get_json_object(decided.body, '$.{part}.{name}') as bigint)"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _has_zone(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def in_comment(text: str) -> str:
    """A text that stays inside its comment, whatever is in it."""
    return json.dumps(text, ensure_ascii=False)
