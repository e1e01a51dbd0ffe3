"""Entries, links and balances of a summary tell the same story, in records and in money."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tapeline.books import exact
from tapeline.books.audit.checks import Check, compared, equal
from tapeline.books.audit.scan import AuditScan
from tapeline.books.commits import read_commits
from tapeline.books.fold import kinds_of
from tapeline.declare import Summary
from tapeline.store.delta_files import read_files
from tapeline.store.duckdb import quoted, register_table, view_files


def check_journal(look: AuditScan, summary: Summary) -> Iterator[Check]:
    name, layout = summary.name, look.books.layout
    journal, links = f"journal_{name}", f"links_{name}"
    stored, shares = look.cut.journal(name), look.cut.links(name)
    if not register_table(look.connection, journal, layout.table(stored), look.range):
        yield from look.gone(name)
        return
    if not register_table(look.connection, links, layout.table(shares), look.range):
        yield from look.gone(name, "links")
        return
    measures = kinds_of(look.connection, journal, summary)
    yield from _entries(look, summary, journal, links)
    for measure, kind in measures.items():
        yield from _money(look, name, (measure, kind), (journal, links))
    yield look.proved(journal, stored, f"{name}'s journal")
    yield look.proved(links, shares, f"{name}'s links")
    yield from _balances(look, summary, measures)


def _entries(look: AuditScan, summary: Summary, journal: str, links: str) -> Iterator[Check]:
    """The journal's entries are the links', the commits rows' and the table's."""
    name = summary.name
    counts = look.counts(name)
    entries = look.sums(journal, "sum(_entries)")
    yield compared(f"{name}: entries = links", look.sums(links, "sum(_sign)"), entries)
    yield compared(
        f"{name}: entries = its commits rows",
        {batch: one.entries for batch, one in counts.items()},
        entries,
    )
    yield compared(
        f"{name}: counted + left out = entries of {summary.stream}",
        look.sums(f"register_{summary.stream}", "sum(_sign) filter (_verdict = 'kept')"),
        {batch: one.counted + one.left_out for batch, one in counts.items()},
    )


def _money(
    look: AuditScan, name: str, of: tuple[str, exact.Kind], views: tuple[str, str]
) -> Iterator[Check]:
    """A measure in the journal is that of the links, and of the commits rows."""
    measure, kind = of
    journal, links = views
    column = quoted(measure)
    ours = look.totals(journal, column, kind)
    theirs = look.totals(links, column, kind, signed=True)
    yield compared(f"{name}: {measure} in the journal = in the links", theirs, ours)
    said = {
        batch: kind.number(one.measures[measure])
        for batch, one in look.counts(name).items()
        if one.measures is not None
    }
    for batch, found in ours.items():
        # Older versions let a total wrap around in the commits row, and nowhere else.
        if said.get(batch) == kind.wrapped(found):
            said[batch] = found
    yield compared(f"{name}: {measure} = its commits rows", said, ours)


def _balances(
    look: AuditScan, summary: Summary, measures: dict[str, exact.Kind]
) -> Iterator[Check]:
    """The cache of balances = what the commits row of its batch says in all."""
    generation = look.cut.commit.generation_of(summary.name)
    files = read_files(look.books.layout.balances(summary.name, generation))
    if not files:
        return
    view_files(look.connection, "balances", [path for path, _, _ in files])

    def query(add: exact.Summing) -> str:
        sums = ", ".join(add(quoted(name), kind) for name, kind in measures.items())
        return f"select max(_batch), sum(_entries), {sums} from balances"

    ((batch, entries, *totals),) = exact.summed(look.connection, query)
    if batch is None:
        return
    rows = read_commits(look.books.layout.commits, batch, batch)
    said = next((row.commit.totals.get(summary.name) for row in rows if row.decides), None)
    if said is None:
        return
    told = said.measures or {}
    same = said.entries == (entries or 0) and all(
        _same(kind, told[measure], found)
        for (measure, kind), found in zip(measures.items(), totals, strict=True)
    )
    yield equal(f"{summary.name}: balances = the journal", None if same else batch)


def _same(kind: exact.Kind, said: str, found: Any) -> bool:
    """Whether two totals agree; one that wrapped around in older batches differs by whole turns."""
    apart = exact.add(kind.number(said), exact.EXACT.minus(kind.number(found)))
    turns = exact.EXACT.remainder(exact.EXACT.scaleb(apart, kind.scale), 2**kind.bits)
    return turns == 0
