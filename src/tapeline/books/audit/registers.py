"""The verdicts of a register add up to its input's records, as the commits rows say."""

from __future__ import annotations

from collections.abc import Iterator

from tapeline.books.audit.checks import Check, compared, equal
from tapeline.books.audit.scan import AuditScan
from tapeline.books.position import has_rows
from tapeline.declare import Table
from tapeline.store.duckdb import register_table


def check_register(look: AuditScan, table: Table) -> Iterator[Check]:
    name = f"register_{table.name}"
    stored = look.cut.register(table.name)
    folder = look.books.layout.table(stored)
    if not register_table(look.connection, name, folder, look.range):
        yield from look.gone(table.name)
        return
    found = _verdicts(look, name)
    verdicts = {batch: sum(found.get(batch, {}).values()) for batch in look.commits}
    if table.stream in look.books.plan.pipeline.sources and has_rows(look.connection, name):
        yield from _split(look, table, name, verdicts)
    else:
        what = f"{table.name}: verdicts = records of {table.stream}"
        yield compared(what, _given(look, table), verdicts)
    said = {
        batch: {word: count for word, count in commit.tables[table.name].verdicts.items() if count}
        for batch, commit in look.commits.items()
        if table.name in commit.tables
    }
    differs = next((b for b in said if said[b] != found.get(b, {})), None)
    yield equal(f"{table.name}: each verdict = its commits rows", differs)
    yield look.proved(name, stored, table.name)


def _split(look: AuditScan, table: Table, view: str, verdicts: dict[int, int]) -> Iterator[Check]:
    """Where rows of messages are records: no message lacks a verdict, and no row does."""
    # A message that stays whole has one verdict, at row -1; any other is counted by its row 0.
    messages = look.sums(view, "sum(_sign) filter (_row = 0 and _position.row <= 0)::bigint")
    what = f"{table.name}: messages with verdicts = records of {table.stream}"
    yield compared(what, _given(look, table), messages)
    said = {batch: counts.records for batch, counts in look.counts(table.name).items()}
    yield compared(f"{table.name}: verdicts = rows of its messages", said, verdicts)


def _verdicts(look: AuditScan, view: str) -> dict[int, dict[str, int]]:
    """How many records got each verdict, by batch."""
    rows = look.connection.execute(
        f"select _batch, _verdict, sum(_sign) filter (_row = 0)::bigint from {view} "
        f"where {look.within} group by all"
    ).fetchall()
    found: dict[int, dict[str, int]] = {}
    for batch, verdict, count in rows:
        if count:
            found.setdefault(batch, {})[verdict] = count
    return found


def _given(look: AuditScan, table: Table) -> dict[int, int]:
    """The records of a table's input, by batch: of its tape, or kept by the table before it."""
    stream = table.stream
    if stream in look.books.plan.pipeline.sources:
        tapes = {batch: commit.tapes.get(stream) for batch, commit in look.commits.items()}
        return {batch: tape.records if tape else 0 for batch, tape in tapes.items()}
    return {batch: counts.verdicts.get("kept", 0) for batch, counts in look.counts(stream).items()}
