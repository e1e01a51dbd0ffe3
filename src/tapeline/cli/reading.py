"""Commands that read the books: reports, reasons, changes, the trial balance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from tapeline.books.gaps import Gap, gaps_of
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    AsReported,
    Form,
    Project,
    Root,
    Target,
    TargetOption,
    books_of,
    checked_form,
    out,
    print_json,
    print_rows,
)
from tapeline.declare.duration import parse_moment
from tapeline.run.sinks.standing import alerts
from tapeline.show import plain, readable, shortened, write_file
from tapeline.watch.audit import audit as run_audit
from tapeline.watch.history import changes, why

app = typer.Typer()


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="A summary, view or table.")],
    form: Form = "table",
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 10_000,
    verdict: Annotated[
        str | None, typer.Option(help="A table's records with this verdict, e.g. quarantined.")
    ] = None,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="A table's corrections of what has not come.")
    ] = False,
    as_reported: AsReported = None,
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show a summary, view or table as it stands, or as it was reported."""
    form = checked_form(form, as_json)
    books = books_of(pipeline, project, root)
    if verdict:
        rows = books.with_verdict(name, verdict)
    elif unmatched:
        rows = books.unmatched(name)
    else:
        rows = books.read(name, parse_moment(as_reported) if as_reported else None)
    rows = rows.slice(0, min(limit, rows.num_rows))  # Arrow slices no columns into any length
    if form == "table" and not rows.num_columns:
        when = f"had no entries by {as_reported}" if as_reported else "has no entries yet"
        out.print(f"{name} {when}.")
    else:
        print_rows(rows, form, name)


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="A summary, view or table.")],
    file: Annotated[Path, typer.Argument(help="Written anew; .csv, .json or .parquet.")],
    as_reported: AsReported = None,
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Write a summary, view or table to a file that other tools open."""
    books = books_of(pipeline, project, root)
    rows = books.read(name, parse_moment(as_reported) if as_reported else None)
    write_file(rows, file)
    if as_json:
        print_json({"file": str(file), "rows": rows.num_rows})
    else:
        out.print(f"{escape(str(file))}: {rows.num_rows:,} rows.")


@app.command("why")
def why_command(
    name: Annotated[str, typer.Argument(help="A summary.")],
    key: Annotated[
        list[str], typer.Argument(help="Its key, in the order of the declaration; '*' for all.")
    ],
    records: Annotated[int, typer.Option(help="At most so many records per revision.")] = 20,
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """The revisions of a number: when, by how much, why, and the records behind each."""
    wanted = [None if value == "*" else value for value in key]
    books = books_of(pipeline, project, root)
    revisions = why(books, name, wanted, records)
    if as_json:
        print_json([plain(revision.facts()) for revision in revisions])
        return
    if not revisions:
        out.print(
            f"{escape(name)} has no entry under {escape(', '.join(key))}. "
            f"'tapeline report {escape(name)}' lists the keys it has.",
            soft_wrap=True,
        )
    for revision in revisions:
        change = ", ".join(f"{n} {v:+,}" for n, v in revision.change.items() if v)
        value = ", ".join(f"{n} {v:,}" for n, v in revision.value.items())
        out.print(
            f"[bold]{readable(revision.at)}[/bold] batch {revision.batch} {revision.cause}: "
            f"{change or 'no change'} -> {value}"
        )
        for one in revision.records:
            sign = "+" if one["sign"] > 0 else "-"
            record = readable(one["record"] or "a record without a key")
            out.print(f"  {sign} {record} ({origin(one)})", soft_wrap=True)


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
def changes_command(
    since: Annotated[str, typer.Option(help="Compare with what was published by then.")],
    name: Annotated[str | None, typer.Argument(help="One summary; all without it.")] = None,
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Every published number that moved since a moment: old, new and why."""
    rows = changes(books_of(pipeline, project, root), parse_moment(since), name)
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
                table.add_row(row["summary"], *map(escape, cells), readable(row["at"]))
    out.print(table if rows else "Nothing moved.")


@app.command("alerts")
def alerts_command(
    pipeline: Target = DEFAULT_TARGET,
    all_of_them: Annotated[
        bool, typer.Option("--all", help="Also those that were closed.")
    ] = False,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """The alerts that stand: since when, how severe, and for what."""
    raised = alerts(books_of(pipeline, project, root))
    shown = [one for one in raised if all_of_them or one["closed_at"] is None]
    if as_json:
        print_json([plain(one) for one in shown])
        return
    table = RichTable("alert", "severity", "key", "raised", "closed", "about")
    for one in shown:
        cells = map(escape, (one["alert"], one["severity"], one["key"]))
        moments = (readable(one["raised_at"]), readable(one["closed_at"]))
        table.add_row(*cells, *moments, escape(one["about"]))
    out.print(table if shown else "No alert stands.")


@app.command()
def audit(
    pipeline: Target = DEFAULT_TARGET,
    full: Annotated[
        bool, typer.Option("--full", help="Everything, also what balanced before.")
    ] = False,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """The trial balance: proof that nothing is lost and nothing doubled. Exit code 4 if not."""
    books = books_of(pipeline, project, root)
    checks = run_audit(books, full)
    wrong = [check for check in checks if not check.balances]
    if as_json:
        print_json(
            {
                "balances": not wrong,
                "checks": [check.facts() for check in checks],
                "gaps": [gap.facts() for gap in gaps_of(books.layout.operator)],
            }
        )
    else:
        print_audit(out, checks, books.cut().batch)
        print_gaps(out, gaps_of(books.layout.operator))
    if wrong:
        raise typer.Exit(4)


def print_gaps(console: Console, gaps: list[Gap]) -> None:
    """What is on no tape, because a cluster had lost it: the books balance without it."""
    if not gaps:
        return
    table = RichTable("partition", "from", "to", "what", "at", "accepted by", title="accepted gaps")
    for gap in gaps:
        last = "unknown" if gap.last is None else str(gap.last)
        words = f"{gap.kind}: {gap.words}"
        table.add_row(gap.name, str(gap.first), last, escape(words), readable(gap.at), gap.who)
    console.print(table)


def print_audit(console: Console, checks: list[Any], batch: int) -> None:
    table = RichTable("equation", "expected", "found", "", title=f"trial balance at batch {batch}")
    for check in checks:
        mark = "[green]=" if check.balances else f"[red]differs, first in batch {check.batch}"
        table.add_row(check.what, check.expected, check.found, mark)
    console.print(table)
    wrong = sum(not check.balances for check in checks)
    console.print(f"[red]{wrong} equations do not hold." if wrong else "[green]The books balance.")
