"""Checks of the books: complete tables, matching positions and numbers that fit their types."""

from __future__ import annotations

from collections.abc import Iterator

from tapeline.books import Books
from tapeline.books.commits import read_commits
from tapeline.declare import Summary
from tapeline.errors import OperationError
from tapeline.operate.doctor.finding import Finding
from tapeline.plan.views import view_inputs
from tapeline.store.delta_files import LogError, damage, tables_below
from tapeline.store.duckdb import QueryError, connect, newest_batch, quoted
from tapeline.words import counted


def tables(books: Books) -> Iterator[Finding]:
    home = books.layout.home
    folders = tables_below(home)
    wrong = [(folder, words) for folder in folders if (words := damage(folder))]
    for folder, words in wrong:
        yield Finding(f"table {folder.relative_to(home)}", "error", words,
                      "See 'What to do on each error' in docs/operate.md.")  # fmt: skip
    if folders and not wrong:
        number = counted(len(folders), "table")
        yield Finding("tables", "ok", f"{number}: all logs and files are complete")


def positions(books: Books) -> Iterator[Finding]:
    cut = books.cut()
    if not cut.batch:
        yield Finding("positions", "ok", "no batch has been published yet")
        return
    rows = read_commits(books.layout.commits, cut.batch)
    open_batches = {r.batch for r in rows if r.decides} - {r.batch for r in rows if r.publishes}
    if open_batches:
        words = f"batch {max(open_batches)} is decided but not published yet"
        remedy = "Nothing: a running pipeline finishes it, and so does the next start."
        yield Finding("positions", "warning", words, remedy)
    for source, position in cut.commit.positions.items():
        last = newest_batch(books.layout.tape_batches(source))
        words = f"tape batch {position.last} of {last} is processed"
        if position.last > last:
            yield Finding(f"tape {source}", "error", words, "Restore the tape from a backup.")
        else:
            yield Finding(f"tape {source}", "ok", words)


def numbers(books: Books) -> Iterator[Finding]:
    """Numbers of summaries that outgrew the types of their columns."""
    for summary in books.plan.summaries:
        try:
            words = _outgrown(books, summary)
        except (OperationError, LogError, QueryError, OSError):
            continue  # a table that cannot be read is a finding of its own
        if words:
            readers = [v.name for v in books.plan.views
                       if summary.name in view_inputs(books.plan.pipeline, v)]  # fmt: skip
            apart = f" The views {', '.join(readers)} leave out these rows." if readers else ""
            yield Finding(
                f"summary {summary.name}", "warning", words,
                "Reports, pages and the API show these numbers in full; SQL shows NULL and sets "
                f"_overflow.{apart} To fix it, cast this measure to a type with more digits and "
                "start new books.",
            )  # fmt: skip


def _outgrown(books: Books, summary: Summary) -> str:
    """Which numbers do not fit their types any more."""
    with connect() as connection:
        if not books.open(connection, summary.name, books.cut()):
            return ""
        name, key = quoted(summary.name), ", ".join(map(quoted, summary.key))
        where = f"from {name} where _overflow"
        ((count,),) = connection.execute(f"select count(*) {where}").fetchall()
        first = connection.execute(f"select {key} {where} order by {key} limit 1").fetchall()
    if not count:
        return ""
    some = ", ".join(map(str, first[0]))
    have = "has" if count == 1 else "have"
    rows = counted(count, "row")
    return f"{rows} {have} a number too large for its type, the first for {some}"
