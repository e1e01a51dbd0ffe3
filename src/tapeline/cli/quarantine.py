"""Commands that list quarantined records, send them again and dismiss them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.option_groups import BooksLocation, grouped
from tapeline.cli.options import AsJson, NoteOption, Who, out, print_json
from tapeline.declare.duration import parse_moment
from tapeline.show import plain, readable, shortened
from tapeline.store.files import read_bytes
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.books import Books
    from tapeline.books.operator import Act
    from tapeline.books.quarantine import Actor, QuarantineFilter

app = Commands(
    help="List quarantined records, send them again or dismiss them.", no_args_is_help=True
)


@dataclass(frozen=True)
class Wanted:
    """Which records in quarantine."""

    table: Annotated[str | None, typer.Option(help="Only records of this table.")] = None
    reason: Annotated[str | None, typer.Option(help="Only records with this text in a reason.")] = (
        None
    )
    source: Annotated[str | None, typer.Option(help="Only records of this source.")] = None
    since: Annotated[str | None, typer.Option(help="Only records published since this time.")] = (
        None
    )

    def filter(self, positions: Sequence[str] = ()) -> QuarantineFilter:
        from tapeline.books.quarantine import QuarantineFilter

        since = parse_moment(self.since) if self.since else None
        return QuarantineFilter(self.table, self.reason, self.source, since, positions)


@dataclass(frozen=True)
class ChosenRecords(Wanted):
    """Records to decide about. Deciding about all of them needs --all."""

    positions: Annotated[
        list[str] | None,
        typer.Argument(help="Positions from 'tapeline quarantine list', e.g. raw_trades:12:345."),
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="All quarantined records.")] = False
    who: Who = None
    note: NoteOption = ""

    def rows(self, books: Books) -> list[dict[str, Any]]:
        from tapeline.books.quarantine import QuarantineFilter, quarantined

        chosen = self.filter(self.positions or ())
        if chosen == QuarantineFilter() and not self.everything:
            raise typer.BadParameter("give positions, a filter, or --all")
        return quarantined(books, chosen)

    def signed(self) -> Actor:
        from tapeline.books.quarantine import Actor

        return Actor(datetime.now(UTC), self.who, self.note)


@app.command("list")
@grouped
def quarantine_list(
    wanted: Wanted,
    place: BooksLocation,
    limit: Annotated[int, typer.Option(help="Maximum rows.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List quarantined records with their reasons, newest first."""
    from tapeline.books.quarantine import quarantined

    rows = quarantined(place.books(), wanted.filter())
    if as_json:
        print_json([plain(row) for row in rows[:limit]])
        return
    shown = RichTable("position", "table", "reasons", "key", "at", "record")
    for row in rows[:limit]:
        record = readable(shortened(row["record"] or b""))
        cells = [row["position"], row["table"], "; ".join(row["reasons"]), str(row["key"] or "")]
        shown.add_row(*map(readable, cells), readable(row["at"]), record)
    out.print(shown if rows else "No quarantined records.")
    if len(rows) > limit:
        out.print(f"{len(rows) - limit:,} more. Raise --limit, or use a filter.")


@app.command("show")
@grouped
def quarantine_show(
    position: Annotated[str, typer.Argument(help="Position from 'tapeline quarantine list'.")],
    place: BooksLocation,
    as_json: AsJson = False,
) -> None:
    """Show one record, the reasons for its quarantine and all decisions about it."""
    from tapeline.books.quarantine import show as show_quarantined

    facts = show_quarantined(place.books(), position)
    if as_json:
        print_json(plain(facts))
        return
    message = facts["message"]
    if message:
        out.print(f"{readable(position)}, offset {message['offset']} of {message['topic']}/"
                  f"{message['partition']}, sent {readable(message['timestamp'])}:")  # fmt: skip
        for name, value in [("key", message["key"]), *_pairs(message["headers"])]:
            out.print(f"{readable(name)}: {readable(value)}", soft_wrap=True)
    else:
        file = readable(facts["delivery"])
        out.print(f"{readable(position)}, line {facts['line']} of {file}:", soft_wrap=True)
    # Looking for words to colour takes for ever in a long record.
    out.print(readable(facts["record"]), soft_wrap=True, highlight=False)
    for row in facts["quarantined"]:
        words = "; ".join([*row["reasons"], *row["details"]])
        out.print(f"quarantined in {row['table']}: {readable(words)}")
    for act in facts["acts"]:
        said = f"{act['act']} by {act['who']}: {act['note']}"
        out.print(f"{readable(act['at'])} {readable(said)}", soft_wrap=True)


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, Any]]:
    return [(f"header {header['name']}", header["value"]) for header in headers or []]


@app.command("redrive")
@grouped
def quarantine_redrive(
    decided: ChosenRecords,
    place: BooksLocation,
    record: Annotated[
        Path | None, typer.Option(help="File with the corrected record; give one position with it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, without changing anything.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send records through their table again, after you fixed a reference or the record."""
    from tapeline.books import Books
    from tapeline.books.operator import REDRIVE
    from tapeline.books.quarantine import decide

    found, settings = place.load()
    books = Books(found, settings.home(found.name))
    rows = decided.rows(books)
    content = read_bytes(record).rstrip(b"\r\n") if record else None
    if dry_run:
        from tapeline.operate.dry_run import rehearse

        _tell_rehearsal(rehearse(found, settings, books, rows, content), as_json)
        return
    _tell_acts(decide(books, REDRIVE, rows, decided.signed(), content), as_json)


@app.command("dismiss")
@grouped
def quarantine_dismiss(
    decided: ChosenRecords, place: BooksLocation, as_json: AsJson = False
) -> None:
    """Dismiss records: they never count and stay in the register."""
    from tapeline.books.operator import DISMISS
    from tapeline.books.quarantine import decide

    books = place.books()
    _tell_acts(decide(books, DISMISS, decided.rows(books), decided.signed()), as_json)


def _tell_acts(acts: list[Act], as_json: bool) -> None:
    if as_json:
        print_json([plain(act.row()) for act in acts])
    elif acts:
        out.print(f"{counted(len(acts), 'action')} saved. The next batch applies them.")
    else:
        out.print("No quarantined record matches.")


def _tell_rehearsal(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(plain(found))
        return
    shown = RichTable("position", "table", "would be", "reasons")
    for row in found["records"]:
        cells = [row["position"], row["table"], row["verdict"], "; ".join(row["reasons"])]
        shown.add_row(*map(readable, cells))
    out.print(shown if found["records"] else "No quarantined record matches.")
    for change in found["changes"]:
        out.print(readable(f"{change['summary']}: {change['change']}"), soft_wrap=True)
