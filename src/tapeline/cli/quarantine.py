"""Commands of the quarantine: what lies there, and what is decided about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as RichTable

from tapeline.books import Books
from tapeline.books.operator import DISMISS, REDRIVE, Act
from tapeline.cli.groups import Place, grouped
from tapeline.cli.options import AsJson, Note, Who, out, print_json
from tapeline.declare.duration import parse_moment
from tapeline.show import plain, readable, shortened
from tapeline.watch.quarantine import Filter, Signed, decide, quarantined
from tapeline.watch.quarantine import show as show_quarantined

app = typer.Typer(
    help="The records in quarantine, and what is decided about them.", no_args_is_help=True
)


@dataclass(frozen=True)
class Wanted:
    """Which records in quarantine."""

    table: Annotated[str | None, typer.Option(help="Only this table's.")] = None
    reason: Annotated[str | None, typer.Option(help="Only with this in one of the reasons.")] = None
    source: Annotated[str | None, typer.Option(help="Only from this source.")] = None
    since: Annotated[str | None, typer.Option(help="Only those published since then.")] = None

    def filter(self, positions: Sequence[str] = ()) -> Filter:
        since = parse_moment(self.since) if self.since else None
        return Filter(self.table, self.reason, self.source, since, positions)


@dataclass(frozen=True)
class Decided(Wanted):
    """Which records somebody decides about; nothing said does not mean everything."""

    positions: Annotated[
        list[str] | None, typer.Argument(help="Positions as listed, e.g. raw_trades:12:345.")
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="All that lie in quarantine.")] = False
    who: Who = None
    note: Note = ""

    def rows(self, books: Books) -> list[dict[str, Any]]:
        chosen = self.filter(self.positions or ())
        if chosen == Filter() and not self.everything:
            raise typer.BadParameter("name positions, a filter, or --all")
        return quarantined(books, chosen)

    def signed(self) -> Signed:
        return Signed(datetime.now(UTC), self.who, self.note)


@app.command("list")
@grouped
def quarantine_list(
    wanted: Wanted,
    place: Place,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = 100,
    as_json: AsJson = False,
) -> None:
    """The records in quarantine, newest first, with their reasons."""
    rows = quarantined(place.books(), wanted.filter())
    if as_json:
        print_json([plain(row) for row in rows[:limit]])
        return
    shown = RichTable("position", "table", "reasons", "key", "at", "record")
    for row in rows[:limit]:
        record = readable(shortened(row["record"] or b""))
        cells = [row["position"], row["table"], "; ".join(row["reasons"]), str(row["key"] or "")]
        shown.add_row(*map(readable, cells), readable(row["at"]), record)
    out.print(shown if rows else "The quarantine is empty.")
    if len(rows) > limit:
        out.print(f"{len(rows) - limit:,} more: raise --limit, or filter.")


@app.command("show")
@grouped
def quarantine_show(
    position: Annotated[str, typer.Argument(help="A position as listed.")],
    place: Place,
    as_json: AsJson = False,
) -> None:
    """One record: its bytes, its reasons, and what was decided about it."""
    facts = show_quarantined(place.books(), position)
    if as_json:
        print_json(plain(facts))
        return
    message = facts["message"]
    if message:
        out.print(f"{escape(position)}, offset {message['offset']} of {message['topic']}/"
                  f"{message['partition']}, sent {readable(message['timestamp'])}:")  # fmt: skip
        for name, value in [("key", message["key"]), *_pairs(message["headers"])]:
            out.print(f"{readable(name)}: {readable(value)}", soft_wrap=True)
    else:
        file = readable(facts["delivery"])
        out.print(f"{escape(position)}, line {facts['line']} of {file}:", soft_wrap=True)
    out.print(readable(facts["record"]), soft_wrap=True)
    for row in facts["quarantined"]:
        out.print(f"in quarantine of {row['table']}: {readable('; '.join(row['reasons']))}")
    for act in facts["acts"]:
        said = f"{act['act']} by {act['who']}: {act['note']}"
        out.print(f"{readable(act['at'])} {escape(said)}")


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, Any]]:
    return [(f"header {header['name']}", header["value"]) for header in headers or []]


@app.command("redrive")
@grouped
def quarantine_redrive(
    decided: Decided,
    place: Place,
    record: Annotated[
        Path | None, typer.Option(help="A file with the corrected record, for one position.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send records through their table again: after a fixed rule, reference or record."""
    found, settings = place.load()
    books = Books(found, settings.home(found.name))
    rows = decided.rows(books)
    content = record.read_bytes().rstrip(b"\r\n") if record else None
    if dry_run:
        from tapeline.run.rehearsal import rehearse

        _tell_rehearsal(rehearse(found, settings, books, rows, content), as_json)
        return
    _tell_acts(decide(books, REDRIVE, rows, decided.signed(), content), as_json)


@app.command("dismiss")
@grouped
def quarantine_dismiss(decided: Decided, place: Place, as_json: AsJson = False) -> None:
    """Decide that records shall never count; they stay in the register, as dismissed."""
    books = place.books()
    _tell_acts(decide(books, DISMISS, decided.rows(books), decided.signed()), as_json)


def _tell_acts(acts: list[Act], as_json: bool) -> None:
    if as_json:
        print_json([plain(act.row()) for act in acts])
    elif acts:
        out.print(f"{len(acts):,} acts recorded; the pipeline's next batch carries them out.")
    else:
        out.print("Nothing in quarantine matches.")


def _tell_rehearsal(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(plain(found))
        return
    shown = RichTable("position", "table", "would be", "reasons")
    for row in found["records"]:
        cells = [row["position"], row["table"], row["verdict"], "; ".join(row["reasons"])]
        shown.add_row(*map(readable, cells))
    out.print(shown if found["records"] else "Nothing in quarantine matches.")
    for change in found["changes"]:
        out.print(escape(f"{change['summary']}: {change['change']}"), soft_wrap=True)
