"""`tapeline run --batch`: one static pass over everything on the tape, into a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tapeline.books import Books
from tapeline.books.compare import Made, write_made
from tapeline.books.references import rows_by_name
from tapeline.books.stored_tape import StoredTape
from tapeline.errors import OperationError
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.show import write_file
from tapeline.spark.one_pass import one_pass
from tapeline.spark.queries import needs_of
from tapeline.spark.session import build_session
from tapeline.store.duckdb import newest_batch
from tapeline.store.files import make_folder


def run_batch(plan: Plan, settings: Settings, folder: Path) -> dict[str, int]:
    """Compute every table and summary from the tape alone; the rows of each, by name.

    It reads the tape and writes the folder. A running pipeline is not disturbed.
    """
    books = Books(plan, settings.home(plan.name))
    if folder.resolve().is_relative_to(books.layout.home.resolve()):
        raise OperationError(f"{folder} is inside the books. Choose another folder with --into.")
    newest = {name: _newest(books, name) for name in plan.pipeline.sources}
    tapes = {name: _tape(books, name, last) for name, last in newest.items()}
    references = _references(books, settings)
    session = build_session(settings, plan.name, needs_of(plan))
    make_folder(folder)
    counts: dict[str, int] = {}
    for name, rows in one_pass(session, plan, settings, tapes, references):
        write_file(rows, folder / f"{name}.parquet")
        counts[name] = rows.num_rows
    write_made(folder, Made(by="batch", pipeline=plan.name, tapes=newest))
    return counts


def _tape(books: Books, source: str, newest: int) -> pa.Table:
    """The records of a source up to a tape batch, in tape order."""
    tape = StoredTape(books.layout, source)
    rows = tape.read(tape.batches(1, newest))
    return rows.append_column("ordinal", pa.array(range(rows.num_rows), pa.int64()))


def _newest(books: Books, source: str) -> int:
    """The last tape batch that is in the books; before the first one, the last on the tape."""
    cut = books.cut()
    if cut.batch:
        return cut.commit.positions[source].last if source in cut.commit.positions else 0
    return newest_batch(books.layout.tape_batches(source))


def _references(books: Books, settings: Settings) -> dict[str, pa.Table]:
    """The references as the last batch saw them; before the first one, as they are now."""
    found = {name: books.read(name) for name in books.plan.pipeline.references}
    if all(rows.num_columns for rows in found.values()):
        return found
    return dict(rows_by_name(books.plan, settings.project, settings))
