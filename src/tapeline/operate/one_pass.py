"""`tapeline run --batch`: one static pass over everything on the tape, into a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tapeline.books import Books
from tapeline.books.compare import Made, write_made
from tapeline.books.references import rows_by_name
from tapeline.errors import OperationError
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.show import write_file
from tapeline.spark.decode import leaf_of
from tapeline.spark.one_pass import one_pass
from tapeline.spark.queries import needs_of
from tapeline.spark.session import build_session
from tapeline.store.duckdb import connect, newest_batch, register_tape
from tapeline.store.files import make_folder


def run_batch(plan: Plan, settings: Settings, folder: Path) -> dict[str, int]:
    """Compute every table and summary from the tape alone; the rows of each, by name.

    It reads the tape and writes the folder. A running pipeline is not disturbed.
    """
    books = Books(plan, settings.home(plan.name))
    if folder.resolve().is_relative_to(books.layout.home.resolve()):
        raise OperationError(f"{folder} is inside the books. Choose another folder with --into.")
    tapes = {name: _tape(books, plan, name) for name in plan.pipeline.sources}
    newest = {name: newest_batch(books.layout.tape_batches(name)) for name in tapes}
    references = _references(books, settings)
    session = build_session(settings, plan.name, needs_of(plan))
    make_folder(folder)
    counts: dict[str, int] = {}
    for name, rows in one_pass(session, plan, settings, tapes, references):
        write_file(rows, folder / f"{name}.parquet")
        counts[name] = rows.num_rows
    write_made(folder, Made(by="batch", pipeline=plan.name, tapes=newest))
    return counts


def _tape(books: Books, plan: Plan, source: str) -> pa.Table:
    """Every record of a source, in tape order."""
    leaf = leaf_of(plan.pipeline.sources[source].connector.records)
    stored = pa.schema([field for field in leaf if field.name != "ordinal"])
    with connect() as connection:
        if not register_tape(connection, "tape", books.layout.tape(source)):
            return leaf.empty_table()
        known = connection.sql("select * from tape limit 0").columns
        columns = ", ".join(
            f'tape."{name}"' if name in known else f'null as "{name}"' for name in stored.names
        )
        query = f"select {columns} from tape order by part, tape.at"
        rows = connection.sql(query).to_arrow_table().select(stored.names).cast(stored)
    return rows.append_column("ordinal", pa.array(range(rows.num_rows), pa.int64()))


def _references(books: Books, settings: Settings) -> dict[str, pa.Table]:
    """The references as the last batch saw them; before the first one, as they are now."""
    found = {name: books.read(name) for name in books.plan.pipeline.references}
    if all(rows.num_columns for rows in found.values()):
        return found
    return dict(rows_by_name(books.plan, settings.project, settings))
