"""Commands that read the books: report, export, why, changes, alerts and audit."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.option_groups import BooksLocation, PipelineLocation, grouped
from tapeline.cli.options import (
    AsJson,
    AsReported,
    OutputFormat,
    checked_form,
    out,
    print_json,
    print_rows,
)
from tapeline.declare.duration import parse_moment
from tapeline.show import plain, readable, shortened, write_file
from tapeline.terminal import Terminal, styled
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.books.gaps import Gap

app = Commands()


@app.command()
@grouped
def report(
    place: BooksLocation,
    name: Annotated[str, typer.Argument(help="Name of a summary, view or table.")],
    form: OutputFormat = "table",
    limit: Annotated[int, typer.Option(min=1, help="Maximum rows.")] = 10_000,
    verdict: Annotated[
        str | None, typer.Option(help="Show a table's records with this verdict, e.g. quarantined.")
    ] = None,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="Show a table's corrections without an original.")
    ] = False,
    as_reported: AsReported = None,
    as_json: AsJson = False,
) -> None:
    """Show a summary, view or table, as it is now or as it was at an earlier time."""
    form = checked_form(form, as_json)
    books = place.books()
    if verdict:
        rows = books.with_verdict(name, verdict)
    elif unmatched:
        rows = books.unmatched(name)
    else:
        rows = books.read(name, parse_moment(as_reported) if as_reported else None)
    rows = rows.slice(0, min(limit, rows.num_rows))  # Arrow slices no columns into any length
    if form == "table" and not rows.num_columns:
        when = f"had no entries at {as_reported}" if as_reported else "has no entries yet"
        out.print(f"{readable(name)} {when}.")
    else:
        print_rows(rows, form, name)


@app.command()
@grouped
def export(
    place: BooksLocation,
    name: Annotated[str, typer.Argument(help="Name of a summary, view or table.")],
    file: Annotated[
        Path,
        typer.Argument(help="Output file (.csv, .json or .parquet); overwritten if it exists."),
    ],
    as_reported: AsReported = None,
    as_json: AsJson = False,
) -> None:
    """Write a summary, view or table to a file."""
    books = place.books()
    rows = books.read(name, parse_moment(as_reported) if as_reported else None)
    write_file(rows, file)
    if as_json:
        print_json({"file": str(file), "rows": rows.num_rows})
    else:
        out.print(f"{readable(str(file))}: {counted(rows.num_rows, 'row')}.")


@app.command("why")
@grouped
def why_command(
    place: BooksLocation,
    name: Annotated[str, typer.Argument(help="Name of a summary.")],
    key: Annotated[
        list[str],
        typer.Argument(help="Key values, in the order of the declaration; '*' matches any value."),
    ],
    records: Annotated[int, typer.Option(help="Maximum records to show per revision.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show how a number changed: when, by how much, why, and by which records."""
    from tapeline.books.revisions import why

    wanted = [None if value == "*" else value for value in key]
    books = place.books()
    revisions = why(books, name, wanted, records)
    if as_json:
        print_json([plain(revision.facts()) for revision in revisions])
        return
    if not revisions:
        out.print(
            f"{readable(name)} has no entry with the key {readable(', '.join(key))}. "
            f"'tapeline report {readable(name)}' lists all keys.",
            soft_wrap=True,
        )
    for revision in revisions:
        change = ", ".join(f"{n} {_said(v, '+')}" for n, v in revision.change.items() if v)
        value = ", ".join(f"{n} {_said(v)}" for n, v in revision.value.items())
        out.print(
            styled(readable(revision.at), "bold"),
            f"batch {revision.batch} {revision.cause}: {change or 'no change'} -> {value}",
        )
        for one in revision.records:
            sign = "+" if one["sign"] > 0 else "-"
            record = readable(one["record"] or "a record without a key")
            out.print(f"  {sign} {record} ({origin(one)})", soft_wrap=True)


def _said(number: Any, sign: str = "") -> str:
    """A number with all its digits, thousands apart; an average of nothing has none."""
    if number is None:
        return "none"
    return f"{number:{sign},f}" if isinstance(number, Decimal) else f"{number:{sign},}"


def origin(record: dict[str, Any]) -> str:
    """Where a record came from, and what came with it; whoever sent it is not trusted."""
    message = record.get("message")
    if message is None:
        return readable(f"{record['source']} {record.get('delivery')} line {record.get('line')}")
    place = f"{message['topic']}/{message['partition']} offset {message['offset']}"
    beside = [("header " + one["name"], one["value"]) for one in message["headers"] or []]
    shown = [
        f"{readable(name)}: {readable(shortened(value))}"
        for name, value in [("key", message["key"]), *beside]
        if value is not None
    ]
    return ", ".join([f"{record['source']} {readable(place)}", *shown])


@app.command("changes")
@grouped
def changes_command(
    place: BooksLocation,
    since: Annotated[str, typer.Option(help="Compare with what was published at this time.")],
    name: Annotated[str | None, typer.Argument(help="Name of a summary (default: all).")] = None,
    as_json: AsJson = False,
) -> None:
    """List the numbers that changed since a given time: old value, new value and cause."""
    from tapeline.books.revisions import changes

    rows = changes(place.books(), parse_moment(since), name)
    if as_json:
        print_json([plain(row) for row in rows])
        return
    table = RichTable("summary", "key", "measure", "old", "new", "causes", "at")
    for row in rows:
        key = ", ".join(readable(value) for value in row["key"].values())
        for measure, new in row["new"].items():
            old = row["old"][measure] if row["old"] else None
            if old != new:
                cells = [key, measure, readable(old), readable(new), row["causes"]]
                table.add_row(row["summary"], *cells, readable(row["at"]))
    out.print(table if rows else "Nothing changed.")


@app.command("alerts")
@grouped
def alerts_command(
    place: PipelineLocation,
    all_of_them: Annotated[bool, typer.Option("--all", help="Also list closed alerts.")] = False,
    as_json: AsJson = False,
) -> None:
    """List active alerts."""
    from tapeline.deliver.active_alerts import alerts
    from tapeline.intake.alerts import engine_alerts
    from tapeline.intake.deliveries import Deliveries

    books = place.books()
    own = engine_alerts(Deliveries(books, place.project.absolute()), datetime.now(UTC))
    raised = [*alerts(books), *(_with_times(one.model_dump()) for one in own)]
    raised.sort(key=lambda one: one["raised_at"])
    shown = [one for one in raised if all_of_them or one["closed_at"] is None]
    if as_json:
        print_json([plain(one) for one in shown])
        return
    table = RichTable("alert", "severity", "key", "raised", "closed", "about")
    for one in shown:
        cells = map(readable, (one["alert"], one["severity"], one["key"]))
        moments = (readable(one["raised_at"]), readable(one["closed_at"]))
        table.add_row(*cells, *moments, readable(one["about"]))
    out.print(table if shown else "No active alerts.")


def _with_times(alert: dict[str, Any]) -> dict[str, Any]:
    """An alert of the engine in the form of those that a pipeline declares."""
    times = {name: alert[name] for name in ("raised_at", "closed_at") if alert[name]}
    return alert | {name: datetime.fromisoformat(at) for name, at in times.items()}


@app.command()
@grouped
def audit(
    place: PipelineLocation,
    full: Annotated[
        bool, typer.Option("--full", help="Check all batches, including those already checked.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Prove that no record is lost or counted twice.

    Shows the trial balance. Exits with 4 if something does not balance.
    """
    from tapeline.books.audit import audit as run_audit
    from tapeline.books.gaps import gaps_of
    from tapeline.books.query_position import unproved

    books = place.books()
    checks = run_audit(books, full)
    wrong = [check for check in checks if not check.balances]
    if as_json:
        print_json(
            {
                "balances": not wrong,
                "checks": [check.facts() for check in checks],
                "gaps": [gap.facts() for gap in gaps_of(books.layout.operator)],
                "unproved": unproved(books),
            }
        )
    else:
        print_audit(out, checks, books.cut().batch)
        print_gaps(out, gaps_of(books.layout.operator))
        for one in unproved(books):
            out.print(readable(f"{one['source']}: {one['words']}"), soft_wrap=True)
    if wrong:
        raise typer.Exit(4)


def print_gaps(console: Terminal, gaps: list[Gap]) -> None:
    """Messages that the cluster lost before they were recorded: the books balance without them."""
    if not gaps:
        return
    table = RichTable("partition", "from", "to", "what", "at", "accepted by", title="accepted gaps")
    for gap in gaps:
        last = "unknown" if gap.last is None else str(gap.last)
        words = f"{gap.kind}: {gap.words}"
        cells = map(readable, (gap.name, gap.first, last, words, gap.at, gap.who))
        table.add_row(*cells)
    console.print(table)


def print_audit(console: Terminal, checks: list[Any], batch: int) -> None:
    table = RichTable("equation", "expected", "found", "", title=f"trial balance at batch {batch}")
    for check in checks:
        mark = styled("=", "green")
        if not check.balances:
            mark = styled(f"differs{check.first}", "red")
        table.add_row(*map(readable, (check.what, check.expected, check.found)), mark)
    console.print(table)
    wrong = sum(not check.balances for check in checks)
    if wrong:
        do = "does" if wrong == 1 else "do"
        console.print(styled(f"{counted(wrong, 'equation')} {do} not balance.", "red"))
    else:
        console.print(styled("The books balance.", "green"))
