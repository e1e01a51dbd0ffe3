"""The trial balance: proof, from the tables alone, that nothing is lost and nothing doubled.

Each commits row says what its batch added to every table: how many rows, how much money, and a
hash of the rows, chained to the row before. The audit adds up what the tables hold and compares,
batch by batch. What balanced before is not looked at again, unless the audit is a full one.
"""

from __future__ import annotations

import hashlib
import json

from tapeline.books import Books
from tapeline.books.audit.checks import Check, equal
from tapeline.books.audit.generations import (
    check_builds,
    check_earlier,
    last_switch,
    rows_of_builds,
    with_builds,
)
from tapeline.books.audit.journals import check_journal
from tapeline.books.audit.registers import check_register
from tapeline.books.audit.scan import AuditScan
from tapeline.books.audit.tapes import check_tape
from tapeline.books.commits import CommitRow, read_commits
from tapeline.books.reader import ReadPoint
from tapeline.store.delta_files import refuse_missing
from tapeline.store.duckdb import connect
from tapeline.store.files import read_json, replace_file

__all__ = ["Check", "audit"]


def audit(books: Books, full: bool = False) -> list[Check]:
    """Every equation, from where the last audit that balanced ended to the last published batch."""
    cut = books.cut()
    since = 0 if full else _audited(books)
    if since < last_switch(cut):
        since = 0  # what was built then holds batches that nobody has looked at
    rows = [r for r in read_commits(books.layout.commits, since) if r.batch <= cut.batch]
    decided = [row for row in rows if row.decides]
    commits = {row.batch: row.commit for row in decided if row.batch > since}
    checks = [_chain(rows, since)]
    _refuse_missing_files(books, cut)
    with connect() as connection:
        look = AuditScan(connection, books, commits, since, cut)
        if since < last_switch(cut):
            built = rows_of_builds(look)
            for generation, of_build in built.items():
                before = of_build[0].batch - 1 if of_build else 0
                checks.append(_chain(of_build, before, f"generation {generation}"))
            checks += check_builds(look, built)
            look.commits = with_builds(look, built)
            checks += check_earlier(look)
        for source in books.plan.pipeline.sources:
            checks += check_tape(look, source)
        for table in books.plan.tables:
            checks += check_register(look, table)
        for summary in books.plan.summaries:
            checks += check_journal(look, summary)
    if decided and all(check.balances for check in checks):
        mark = {"batch": decided[-1].batch, "hash": decided[-1].hash}
        replace_file(books.layout.audited, json.dumps(mark).encode(), lasting=False)
    return checks


def _refuse_missing_files(books: Books, cut: ReadPoint) -> None:
    """Files of batches that balanced before are not read again, but they must be there."""
    layout, plan = books.layout, books.plan
    for source in plan.pipeline.sources:
        refuse_missing(layout.tape(source))
    for table in plan.tables:
        refuse_missing(layout.table(cut.register(table.name)))
    for summary in plan.summaries:
        refuse_missing(layout.table(cut.journal(summary.name)))
        refuse_missing(layout.table(cut.links(summary.name)))


def _audited(books: Books) -> int:
    """The batch through which the books were found to balance; the note is disposable."""
    try:
        mark = read_json(books.layout.audited)
        batch, link = int(mark["batch"]), str(mark["hash"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    rows = read_commits(books.layout.commits, batch, batch)
    return batch if any(row.decides and row.hash == link for row in rows) else 0


def _chain(rows: list[CommitRow], since: int, words: str = "commits") -> Check:
    """Each commits row's hash follows from its body and the row before; no number is missing."""
    previous, number = "", since
    wrong = None
    published = {row.batch for row in rows if row.publishes}
    for row in (row for row in rows if row.decides):
        if row.batch == since:
            previous = row.hash
            continue
        number += 1
        link = hashlib.sha256(f"{previous}{row.body}".encode()).hexdigest()
        if row.batch != number or row.hash != link or number not in published:
            wrong = wrong or number
            number = row.batch
        previous = row.hash
    return equal(f"{words}: each row follows from the one before", wrong)
