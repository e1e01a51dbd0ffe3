"""Commands that show what happened to files, offsets and pulls, and retry rejected files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.option_groups import BooksLocation, grouped
from tapeline.cli.options import AsJson, NoteOption, Who, out, print_json
from tapeline.show import plain, readable, shortened
from tapeline.terminal import styled
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.books.deliveries import Delivery, DeliveryFilter
    from tapeline.books.rejected import RejectedFile
    from tapeline.intake.deliveries import Deliveries

app = Commands(help="Show what happened to each file, range of offsets and pull.")
COLOURS = {"rejected": "red", "waiting": "yellow", "on the tape": "yellow", "booked": "green"}
Name = Annotated[
    str, typer.Argument(help="Name of the file, or id from 'tapeline deliveries'.")
]  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """Which deliveries."""

    state: Annotated[
        str | None,
        typer.Option(
            help="Only this state: waiting, on the tape, booked, empty, rejected, retried or "
            "dismissed."
        ),
    ] = None
    source: Annotated[str | None, typer.Option(help="Only deliveries of this source.")] = None
    name: Annotated[str | None, typer.Option(help="Only names that contain this text.")] = None

    def filter(self) -> DeliveryFilter:
        from tapeline.books.deliveries import DeliveryFilter

        return DeliveryFilter(self.state, self.source, self.name)


def deliveries_of(place: BooksLocation) -> Deliveries:
    """The deliveries of a pipeline, which live in its books and in its project's folders."""
    from tapeline.books import Books
    from tapeline.cli.pandas_aside import leave_pandas_aside
    from tapeline.intake.deliveries import Deliveries

    plan, settings = place.load()
    leave_pandas_aside()
    return Deliveries(Books(plan, settings.home(plan.name)), settings.project)


@app.callback(invoke_without_command=True)
@grouped
def deliveries(
    context: typer.Context,
    wanted: Wanted,
    place: BooksLocation,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum deliveries.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many of the newest.")] = 0,
    as_json: AsJson = False,
) -> None:
    """List what was delivered, newest first: state, arrival, batch and verdicts."""
    command = context.invoked_subcommand
    if command is not None:
        if (wanted, place, as_json) != (Wanted(), BooksLocation(), False):
            raise typer.BadParameter(f"write options after '{command}'")
        return
    known = deliveries_of(place)
    page = known.page(wanted.filter(), limit, offset)
    overview = known.overview()
    if as_json:
        listed = [plain(one.facts()) for one in page.deliveries]
        following = offset + limit if page.more else None
        print_json({**plain(overview), "deliveries": listed, "next_offset": following})
        return
    _print_overview(overview)
    table = RichTable("id", "state", "kind", "name", "arrived", "records", "batch", "what happened")
    table.columns[5].justify = table.columns[6].justify = "right"
    for one in page.deliveries:
        table.add_row(*_cells(one))
    out.print(table if page.deliveries else "No deliveries.")
    if page.more:
        out.print(f"Older ones follow: use --offset {offset + limit}, or a filter.")


def _cells(one: Delivery) -> list[Any]:
    records = "" if one.records is None else f"{one.records:,}"
    batch = "" if one.batch is None else str(one.batch)
    return [
        readable(one.id or one.source),
        styled(one.state, COLOURS.get(one.state, "")),
        one.kind,
        readable(one.title),
        readable(one.arrived_at),
        records,
        batch,
        readable(words_of(one)),
    ]


def words_of(one: Delivery) -> str:
    """What became of a delivery, in a few words."""
    said = [one.problem] if one.problem else []
    if one.decided:
        said.append(f"{one.decided['act']} by {one.decided['who']}")
    for number, (table, verdicts) in enumerate(one.verdicts.items()):
        # Of later tables only what needs review.
        shown = {v: n for v, n in verdicts.items() if number == 0 or v == "quarantined"}
        words = ", ".join(f"{verdict} {count:,}" for verdict, count in shown.items())
        said += [words if number == 0 else f"{table}: {words}"] if words else []
    return "; ".join(said)


def _print_overview(overview: dict[str, Any]) -> None:
    last, waiting, rejected = (overview[n] for n in ("last_booked", "waiting", "rejected"))
    if last:
        when = f"batch {last['batch']}, published {readable(last['published_at'])}"
        out.print(f"Last processed: {readable(last['name'])} ({when}).", soft_wrap=True)
    out.print(f"Waiting: {waiting:,}. Rejected: {rejected:,}.")


@app.command()
@grouped
def show(
    name: Name,
    place: BooksLocation,
    verdict: Annotated[
        str | None, typer.Option(help="Only records with this verdict, e.g. quarantined.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum records.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many records.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show one delivery and its records: line, position, verdict and reasons.

    Of several deliveries with the same name, the newest; choose another by its id.
    """
    from tapeline.books.delivery_records import RecordsWanted, records_of

    known = deliveries_of(place)
    one, others = known.find(name)
    found = records_of(known.books, one, RecordsWanted(verdict, limit, offset))
    if as_json:
        following = offset + limit if found.more else None
        facts = {**one.facts(), "others": others, "shown": found.records, "next_offset": following}
        print_json(plain(facts))
        return
    _print_facts(one, others)
    _print_records(found.records)
    if found.more:
        out.print(f"More records follow: use --offset {offset + limit}.")


def _print_facts(one: Delivery, others: list[str]) -> None:
    table = RichTable("what", "value", title=readable(one.title), show_header=False)
    size = None if one.bytes is None else counted(one.bytes, "byte")
    facts = {
        "state": one.state, "id": one.id, "source": one.source, "kind": one.kind,
        "arrived": one.arrived_at, "size": size, "records": one.records, "batch": one.batch,
        "published": one.published_at, "what happened": words_of(one), "kept as": one.kept_as,
    }  # fmt: skip
    for what, value in facts.items():
        if value not in (None, ""):
            table.add_row(what, readable(f"{value:,}" if isinstance(value, int) else value))
    out.print(table)
    if others:
        out.print(f"Other deliveries with this name: {', '.join(others)}.", soft_wrap=True)
    if one.state == "rejected":
        again = f"tapeline deliveries retry {one.id}" if one.id else "nothing: it is taken again"
        out.print(f"Correct the file, then: {again}.", soft_wrap=True)


def _print_records(records: list[dict[str, Any]]) -> None:
    if not records:
        return
    table = RichTable("position", "line", "table", "verdict", "reasons", "key", "record")
    for record in records:
        text = readable(shortened(record["record"] or b""))
        line = record["line"] if record["line"] is not None else record["offset"]
        first = [record["position"], str(line)]
        for verdict in record["verdicts"] or [{}]:
            words = "; ".join([*verdict.get("reasons", ()), *verdict.get("details", ())])
            cells = [verdict.get("table", ""), verdict.get("verdict", "not yet"), words]
            table.add_row(*map(readable, (*first, *cells, verdict.get("key") or "")), text)
            first, text = ["", ""], ""
    out.print(table)
    out.print(
        "See also: tapeline quarantine show POSITION, tapeline why SUMMARY KEY.", soft_wrap=True
    )


@app.command("retry")
@grouped
def retry_command(
    name: Name,
    place: BooksLocation,
    file: Annotated[
        Path | None,
        typer.Option(help="The corrected file (default: the rejected file as it is now)."),
    ] = None,
    who: Who = None,
    note: NoteOption = "",
    as_json: AsJson = False,
) -> None:
    """Send a rejected file through intake again, after it was corrected."""
    from tapeline.books.quarantine import Actor

    signed = Actor(datetime.now(UTC), who, note)
    _say_decided(deliveries_of(place).retry(name, signed, file), as_json)


@app.command("dismiss")
@grouped
def dismiss_command(
    name: Name,
    place: BooksLocation,
    who: Who = None,
    note: NoteOption = "",
    as_json: AsJson = False,
) -> None:
    """Leave a rejected file out for good. It stays in the folder of rejected files."""
    from tapeline.books.quarantine import Actor

    signed = Actor(datetime.now(UTC), who, note)
    _say_decided(deliveries_of(place).dismiss(name, signed), as_json)


def _say_decided(file: RejectedFile, as_json: bool) -> None:
    decided = file.decided
    assert decided is not None, "it was decided a moment ago"
    if as_json:
        print_json({"id": file.id, "name": file.name, **vars(decided)})
        return
    then = " It is in the input folder again." if decided.act == "retried" else ""
    words = f"{readable(file.name)} ({file.id}): {decided.act} by {readable(decided.who)}.{then}"
    out.print(words, soft_wrap=True)
