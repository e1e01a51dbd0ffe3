"""Entries, links and balances of a summary tell the same story, in records and in money."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal

from tapeline.books.commits import read_commits
from tapeline.books.delta import read_files
from tapeline.books.fold import measures_of
from tapeline.books.query import quoted, register_table, view_files
from tapeline.declare import Summary
from tapeline.watch.audit.checks import Check, compared, equal
from tapeline.watch.audit.look import Look


def check_journal(look: Look, summary: Summary) -> Iterator[Check]:
    name, layout = summary.name, look.books.layout
    journal, links = f"journal_{name}", f"links_{name}"
    if not register_table(look.connection, journal, layout.journal(name), look.range):
        yield from look.gone(name)
        return
    if not register_table(look.connection, links, layout.links(name), look.range):
        yield from look.gone(name, "links")
        return
    measures = measures_of(look.connection, journal, summary)
    yield from _entries(look, summary, journal, links)
    for measure in measures:
        yield from _money(look, name, measure, (journal, links))
    yield look.proved(journal, f"gold/{name}", f"{name}'s journal")
    yield look.proved(links, f"gold/{name}_links", f"{name}'s links")
    yield from _balances(look, summary, measures)


def _entries(look: Look, summary: Summary, journal: str, links: str) -> Iterator[Check]:
    """The journal's entries are the links', the commits rows' and the table's."""
    name = summary.name
    facts = {b: body["tables"].get(name, {}) for b, body in look.bodies.items()}
    entries = look.sums(journal, "sum(_entries)")
    yield compared(f"{name}: entries = links", look.sums(links, "sum(_sign)"), entries)
    yield compared(
        f"{name}: entries = its commits rows",
        {b: one.get("entries", 0) for b, one in facts.items()},
        entries,
    )
    yield compared(
        f"{name}: counted + left out = entries of {summary.stream}",
        look.sums(f"register_{summary.stream}", "sum(_sign) filter (_verdict = 'kept')"),
        {b: one.get("counted", 0) + one.get("left_out", 0) for b, one in facts.items()},
    )


def _money(look: Look, name: str, measure: str, views: tuple[str, str]) -> Iterator[Check]:
    """A measure in the journal is that of the links, and of the commits rows."""
    journal, links = views
    column = quoted(measure)
    ours = look.sums(journal, f"sum({column})")
    shares = f"sum(case when _sign > 0 then {column} else -{column} end)"
    yield compared(
        f"{name}: {measure} in the journal = in the links", look.sums(links, shares), ours
    )
    facts = {b: body["tables"].get(name, {}) for b, body in look.bodies.items()}
    said = {b: Decimal(one["measures"][measure]) for b, one in facts.items() if one}
    yield compared(f"{name}: {measure} = its commits rows", said, ours)


def _balances(look: Look, summary: Summary, measures: list[str]) -> Iterator[Check]:
    """The cache of balances = what the commits row of its batch says in all."""
    files = read_files(look.books.layout.balances(summary.name))
    if not files:
        return
    view_files(look.connection, "balances", [path for path, _, _ in files])
    sums = ", ".join(f"sum({quoted(m)})" for m in measures)
    ((batch, entries, *totals),) = look.connection.execute(
        f"select max(_batch), sum(_entries), {sums} from balances"
    ).fetchall()
    if batch is None:
        return
    rows = read_commits(look.books.layout.commits, batch, batch)
    body = next((json.loads(r["body"]) for r in rows if r["event"] == "decided"), None)
    if body is None or summary.name not in body["totals"]:
        return
    said = body["totals"][summary.name]
    expected = [said["entries"], *(Decimal(said["measures"][m]) for m in measures)]
    same = [Decimal(v or 0) for v in (entries, *totals)] == [Decimal(v) for v in expected]
    yield equal(f"{summary.name}: balances = the journal", None if same else batch)
