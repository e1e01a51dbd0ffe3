"""The books beside a folder of other results of the same pipeline: every number that differs.

A folder has a Parquet file for each table and summary, and `made.json`, which says how they were
made. Whoever makes results of another kind writes the same files.
"""

# ruff: noqa: RUF012 - pydantic copies defaults
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tapeline.books.reader import Books
from tapeline.books.status import read_document
from tapeline.declare import Summary
from tapeline.errors import QuestionError
from tapeline.store.document import Document, Text
from tapeline.store.duckdb import newest_batch, read_parquet
from tapeline.store.files import is_there, replace_json
from tapeline.words import counted

MADE = "made.json"
AVERAGE_DIGITS = 4  # Spark's own average of integers is a double
WORDS = {
    "late": "came late",
    "correction": "corrected",
    "cancellation": "cancelled",
    "redrive": "redriven from quarantine",
}
Row = dict[str, Any]


class Made(Document):
    """How a folder of results was made, and how far its tapes reached."""

    by: Text = ""
    pipeline: Text = ""
    tapes: dict[Text, int] = {}


@dataclass(frozen=True)
class Difference:
    """A number that the books and the folder do not agree on."""

    name: str
    key: Mapping[str, Any]
    measure: str
    books: Any
    other: Any
    why: str

    def as_dict(self) -> Row:
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """What was compared, and what differs."""

    by: str
    numbers: int
    differences: list[Difference]
    notes: list[str]

    def as_dict(self) -> Row:
        found = [one.as_dict() for one in self.differences]
        return {"by": self.by, "numbers": self.numbers, "notes": self.notes, "differences": found}


def write_made(folder: Path, made: Made) -> None:
    replace_json(folder / MADE, made.as_dict())


def compare(books: Books, folder: Path) -> Comparison:
    """Compare every table and summary that the folder has."""
    made = read_document(folder / MADE, Made)
    if made is None:
        raise QuestionError(
            f"{folder} has no results: it lacks {MADE}. Make some with 'tapeline run --batch'."
        )
    if made.pipeline != books.plan.name:
        raise QuestionError(f"{folder} has results of '{made.pipeline}', not '{books.plan.name}'.")
    numbers = 0
    differences: list[Difference] = []
    for table in books.plan.tables:
        if is_there(folder / f"{table.name}.parquet"):
            numbers += 1
            rows = read_parquet(folder / f"{table.name}.parquet")
            differences += _tables(table.name, _own(books.read(table.name)), rows)
    for summary in books.plan.summaries:
        if is_there(folder / f"{summary.name}.parquet"):
            rows = read_parquet(folder / f"{summary.name}.parquet")
            numbers += rows.num_rows * (rows.num_columns - len(summary.key))
            differences += _summaries(books, summary, rows)
    return Comparison(made.by, numbers, differences, list(_notes(books, made)))


def _notes(books: Books, made: Made) -> Iterator[str]:
    positions = books.cut().commit.positions
    for source, newest in made.tapes.items():
        booked = positions[source].last if source in positions else 0
        if booked != newest:
            yield (
                f"{source}: the folder has tape batches up to {newest}, the books up to {booked}. "
                "Differences may come from the records between."
            )
    for name in books.plan.pipeline.references:
        versions = newest_batch(books.layout.reference(name))
        if versions > 1:
            yield (
                f"{name}: this reference has {counted(versions, 'version')}. The books used the "
                "version of each batch, the folder uses one for all records."
            )


def _own(rows: pa.Table) -> pa.Table:
    return rows.select([name for name in rows.column_names if not name.startswith("_")])


def _tables(name: str, books: pa.Table, other: pa.Table) -> Iterator[Difference]:
    """Two tables as heaps of rows."""
    columns = books.column_names or other.column_names
    here = Counter(map(str, (_plain(row) for row in books.to_pylist())))
    there = Counter(map(str, (_plain(row) for row in other.select(columns).to_pylist())))
    only_here, only_there = (here - there).total(), (there - here).total()
    if only_here or only_there:
        why = f"{counted(only_here, 'row')} only in the books, {only_there} only in the folder"
        yield Difference(name, {}, "rows", here.total(), there.total(), why)


def _summaries(books: Books, summary: Summary, other: pa.Table) -> Iterator[Difference]:
    """Two summaries number by number; a key that one of them lacks has nothing there."""
    here, there = (_by_key(rows, summary) for rows in (_own(books.read(summary.name)), other))
    measures = [name for name in other.column_names if name not in summary.key]
    causes: dict[tuple[Any, ...], Counter[str]] = {}
    for key in sorted({*here, *there}, key=str):
        for measure in measures:
            mine, its = (rows.get(key, {}).get(measure) for rows in (here, there))
            if not _equal(mine, its):
                causes = causes or _causes(books, summary)
                said = dict(zip(summary.key, key, strict=True))
                why = _why(causes.get(key, Counter()), key in here, key in there)
                yield Difference(summary.name, said, measure, mine, its, why)


def _by_key(rows: pa.Table, summary: Summary) -> dict[tuple[Any, ...], Row]:
    return {tuple(_value(row[n]) for n in summary.key): row for row in rows.to_pylist()}


def _equal(mine: Any, its: Any) -> bool:
    """Nothing and zero are the same: Spark says null where no record counts."""
    if isinstance(its, float):
        return abs(float(mine or 0) - its) < 10.0**-AVERAGE_DIGITS
    return bool(Decimal(str(mine or 0)) == Decimal(str(its or 0)))


def _causes(books: Books, summary: Summary) -> dict[tuple[Any, ...], Counter[str]]:
    """How many entries of which cause each key of a summary has."""
    found: dict[tuple[Any, ...], Counter[str]] = {}
    for row in books.journal(summary.name).to_pylist():
        key = tuple(_value(row[name]) for name in summary.key)
        found.setdefault(key, Counter())[row["_cause"]] += abs(row["_entries"])
    return found


def _why(causes: Counter[str], here: bool, there: bool) -> str:
    """What the books know about a number that may explain the difference."""
    parts = [
        f"{counted(count, 'entry')} {WORDS[cause]}"
        for cause, count in causes.items()
        if cause in WORDS
    ]
    if not here:
        parts.append("this key is not in the books")
    if not there:
        parts.append("this key is not in the folder")
    return ", ".join(parts) or "unknown; 'tapeline why' lists the records of a number"


def _plain(row: Row) -> list[tuple[str, Any]]:
    return [(name, _value(value)) for name, value in row.items()]


def _value(value: Any) -> Any:
    """Equal values, equal texts: trailing zeros and names of UTC do not matter."""
    if isinstance(value, Decimal):
        return value.normalize() + 0
    return value.isoformat() if hasattr(value, "isoformat") and value is not None else value
