"""The command line: parses, calls, prints; decides nothing."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from tapeline.books import Books
from tapeline.books.operator import DISMISS, REDRIVE, Act
from tapeline.declare.duration import parse_duration, parse_moment
from tapeline.errors import TapelineError
from tapeline.plan import Plan, load_pipeline, resolve
from tapeline.settings import Settings, load_settings
from tapeline.show import as_csv, as_table, plain, readable
from tapeline.show import as_json as as_json_text
from tapeline.watch.audit import audit as run_audit
from tapeline.watch.history import changes, why
from tapeline.watch.quarantine import Filter, Signed, decide, quarantined
from tapeline.watch.quarantine import show as show_quarantined
from tapeline.watch.status import read_status

app = typer.Typer(
    help="Tapeline keeps the books of a stream.", no_args_is_help=True, add_completion=False
)
quarantine_app = typer.Typer(
    help="The records in quarantine, and what is decided about them.", no_args_is_help=True
)
app.add_typer(quarantine_app, name="quarantine")
SHOWN_BYTES = 80
# A pipe has no width: what is piped is not cut.
out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)

Target = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A pipeline file, or a module that declares one.")
]
TargetOption = Annotated[
    str, typer.Option("--pipeline", "-p", help="A pipeline file, or a module that declares one.")
]
Project = Annotated[
    Path, typer.Option(help="The project's folder: tapeline.toml, landing, reference data.")
]
Root = Annotated[Path | None, typer.Option(help="Where the books are kept.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT_TARGET = "tapeline.trades"


def _load(target: str, project: Path, root: Path | None) -> tuple[Plan, Settings]:
    settings = load_settings(project.absolute())
    if root is not None:
        settings = replace(settings, root=root)
    return resolve(load_pipeline(target, settings)), settings


def _books(target: str, project: Path, root: Path | None) -> Books:
    plan, settings = _load(target, project, root)
    return Books(plan, settings.home(plan.name))


def _print_json(value: Any) -> None:
    out.print_json(json.dumps(plain(value)))


@app.command()
def plan(
    pipeline: Target = DEFAULT_TARGET,
    check: Annotated[bool, typer.Option(help="Also let Spark analyse every step.")] = False,
    project: Project = Path(),
    as_json: AsJson = False,
) -> None:
    """Say what a pipeline means, and refuse what is wrong with it, before any data is touched."""
    found, settings = _load(pipeline, project, None)
    if check:
        from tapeline.run.references import rows_by_name
        from tapeline.run.session import build_session
        from tapeline.run.steps import prepare

        prepare(build_session(settings), found, rows_by_name(found, settings.project))
    steps = [
        (kind, item.name, item.connector.path, str(item.where))
        for kind, items in (
            ("source", found.pipeline.sources),
            ("reference", found.pipeline.references),
        )
        for item in items.values()
    ]
    for step in (*found.tables, *found.summaries):
        kind = "table" if step in found.tables else "summary"
        steps.append((kind, step.name, ", ".join(i.name for i in step.inputs), str(step.where)))
    steps += [("view", view.name, "", str(view.where)) for view in found.views]
    if as_json:
        names = ("kind", "name", "reads", "where")
        _print_json([dict(zip(names, step, strict=True)) for step in steps])
        return
    table = RichTable("kind", "name", "reads", "declared at", title=f"pipeline {found.name}")
    for row in steps:
        table.add_row(*row)
    out.print(table)
    out.print("[green]The plan holds." + (" Spark agrees with every step." if check else ""))


@app.command()
def run(
    pipeline: Target = DEFAULT_TARGET,
    once: Annotated[bool, typer.Option("--once", help="Work off what is there, then end.")] = False,
    every: Annotated[
        str, typer.Option(help="When the flow advances: 'asap', or aligned ticks, '15 minutes'.")
    ] = "asap",
    seconds: Annotated[float | None, typer.Option(help="End after this many seconds.")] = None,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until Ctrl-C, or once."""
    from tapeline.run.runner import Runner

    interval = None if every == "asap" else parse_duration(every)
    found, settings = _load(pipeline, project, root)
    if not as_json:
        err.print(f"Starting Spark for [bold]{found.name}[/bold] ...")
    with Runner(found, settings) as runner:
        signal.signal(signal.SIGTERM, lambda *_: runner.stop())
        if once:
            done = runner.run_once()
            facts = {
                "batches": len(done),
                "records": sum(p.records for p in done),
                "batch": runner.flow.published_batch,
            }
        else:
            if not as_json:
                err.print("Running; Ctrl-C stops it. See 'tapeline status' and 'tapeline report'.")
            try:
                runner.run(interval, seconds)
            except KeyboardInterrupt:
                runner.stop()
            facts = {"batch": runner.flow.published_batch}
            if runner.failure is not None:
                raise runner.failure
    if as_json:
        _print_json(facts)
    elif once:
        out.print(f"{facts['records']:,} records in {facts['batches']} batches; the books stand at "
                  f"batch {facts['batch']}.")  # fmt: skip


@app.command()
def status(
    pipeline: Target = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Where a flow stands: position, lag, rate, batch time, overruns."""
    books = _books(pipeline, project, root)
    cut = books.cut()
    facts = read_status(books.layout.status) or {"running": False, "batch": cut.batch}
    facts["totals"] = books.totals()
    if as_json:
        _print_json(facts)
        return
    table = RichTable("what", "value", title=f"pipeline {books.plan.name}", show_header=False)
    for key, value in facts.items():
        if key != "totals":
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            table.add_row(key.replace("_", " "), escape(text))
    out.print(table)
    for name, totals in facts["totals"].items():
        verdicts = totals.get("verdicts")
        if verdicts:
            out.print(f"{name}: " + ", ".join(f"{k} {v:,}" for k, v in sorted(verdicts.items())))


@app.command()
def serve(
    pipeline: Target = DEFAULT_TARGET,
    address: Annotated[
        str | None, typer.Option(help="Listen here; beyond loopback a token is needed.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Listen on this port; 0 for any.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token; made if it is not there.")
    ] = None,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show the books: live pages and an API, without Spark, until Ctrl-C."""
    from tapeline.serve.app import Server

    found, settings = _load(pipeline, project, root)
    chosen = replace(
        settings.serve,
        address=address or settings.serve.address,
        port=settings.serve.port if port is None else port,
        token_file=str(token_file) if token_file else settings.serve.token_file,
    )
    server = Server(Books(found, settings.home(found.name)), chosen, settings.project)
    if as_json:
        _print_json({"address": server.address})
    else:
        out.print(f"[bold]{server.address}[/bold] shows {found.name}; Ctrl-C stops it.")
    server.run()


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="A summary, view or table.")],
    form: Annotated[str, typer.Option("--format", help="table, csv or json")] = "table",
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = 10_000,
    verdict: Annotated[
        str | None, typer.Option(help="A table's records with this verdict, e.g. quarantined.")
    ] = None,
    unmatched: Annotated[
        bool, typer.Option("--unmatched", help="A table's corrections of what has not come.")
    ] = False,
    as_reported: Annotated[
        str | None, typer.Option(help="As it was published by then, e.g. '2026-11-13 10:31'.")
    ] = None,
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show a summary, view or table as it stands, or as it was reported."""
    books = _books(pipeline, project, root)
    if verdict:
        rows = books.with_verdict(name, verdict)
    elif unmatched:
        rows = books.unmatched(name)
    else:
        rows = books.read(name, parse_moment(as_reported) if as_reported else None)
    rows = rows.slice(0, min(limit, rows.num_rows))  # Arrow slices no columns into any length
    if as_json or form == "json":
        sys.stdout.write(as_json_text(rows) + "\n")
    elif form == "csv":
        sys.stdout.write(as_csv(rows))
    elif form == "table":
        out.print(as_table(rows, name) if rows.num_columns else f"{name} has no entries yet.")
    else:
        raise typer.BadParameter(f"'{form}' is not one of table, csv, json")


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
    revisions = why(_books(pipeline, project, root), name, wanted, records)
    if as_json:
        _print_json([plain(revision.facts()) for revision in revisions])
        return
    if not revisions:
        out.print(f"{escape(name)} has no entry under {escape(', '.join(key))}.")
    for revision in revisions:
        change = ", ".join(f"{n} {v:+,}" for n, v in revision.change.items() if v)
        value = ", ".join(f"{n} {v:,}" for n, v in revision.value.items())
        out.print(
            f"[bold]{readable(revision.at)}[/bold] batch {revision.batch} {revision.cause}: "
            f"{change or 'no change'} -> {value}"
        )
        for one in revision.records:
            where = f"{one['source']} {one.get('delivery')} line {one.get('line')}"
            sign = "+" if one["sign"] > 0 else "-"
            out.print(f"  {sign} {escape(str(one['record']))} ({escape(where)})")


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
    rows = changes(_books(pipeline, project, root), parse_moment(since), name)
    if as_json:
        _print_json([plain(row) for row in rows])
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


Table_ = Annotated[str | None, typer.Option("--table", help="Only this table's.")]
Reason = Annotated[str | None, typer.Option(help="Only with this in one of the reasons.")]
Source = Annotated[str | None, typer.Option(help="Only from this source.")]
Since = Annotated[str | None, typer.Option(help="Only those published since then.")]
Positions = Annotated[
    list[str] | None, typer.Argument(help="Positions as listed, e.g. raw_trades:12:345.")
]
Who = Annotated[str | None, typer.Option(help="Who decides; the user of this machine if unsaid.")]
Note = Annotated[str, typer.Option(help="Why, for the record.")]
Everything = Annotated[bool, typer.Option("--all", help="All that lie in quarantine.")]


@quarantine_app.command("list")
def quarantine_list(
    table: Table_ = None,
    reason: Reason = None,
    source: Source = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = 100,
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """The records in quarantine, newest first, with their reasons."""
    books = _books(pipeline, project, root)
    chosen = Filter(table, reason, source, parse_moment(since) if since else None)
    rows = quarantined(books, chosen)
    if as_json:
        _print_json([plain(row) for row in rows[:limit]])
        return
    shown = RichTable("position", "table", "reasons", "key", "at", "record")
    for row in rows[:limit]:
        record = readable(row["record"] or b"")[:SHOWN_BYTES]
        cells = [row["position"], row["table"], "; ".join(row["reasons"]), str(row["key"] or "")]
        shown.add_row(*map(escape, cells), readable(row["at"]), record)
    out.print(shown if rows else "The quarantine is empty.")
    if len(rows) > limit:
        out.print(f"{len(rows) - limit:,} more: raise --limit, or filter.")


@quarantine_app.command("show")
def quarantine_show(
    position: Annotated[str, typer.Argument(help="A position as listed.")],
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """One record: its bytes, its reasons, and what was decided about it."""
    facts = show_quarantined(_books(pipeline, project, root), position)
    if as_json:
        _print_json(plain(facts))
        return
    out.print(f"{escape(position)}, line {facts['line']} of delivery {facts['delivery']}:")
    out.print(readable(facts["record"]), soft_wrap=True)
    for row in facts["quarantined"]:
        out.print(f"in quarantine of {row['table']}: {escape('; '.join(row['reasons']))}")
    for act in facts["acts"]:
        said = f"{act['act']} by {act['who']}: {act['note']}"
        out.print(f"{readable(act['at'])} {escape(said)}")


@quarantine_app.command("redrive")
def quarantine_redrive(
    positions: Positions = None,
    everything: Everything = False,
    table: Table_ = None,
    reason: Reason = None,
    source: Source = None,
    since: Since = None,
    record: Annotated[
        Path | None, typer.Option(help="A file with the corrected record, for one position.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")
    ] = False,
    who: Who = None,
    note: Note = "",
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Send records through their table again: after a fixed rule, reference or record."""
    found, settings = _load(pipeline, project, root)
    books = Books(found, settings.home(found.name))
    chosen = Filter(table, reason, source, parse_moment(since) if since else None, positions or ())
    rows = _chosen(books, chosen, everything)
    content = record.read_bytes().rstrip(b"\r\n") if record else None
    if dry_run:
        from tapeline.run.rehearsal import rehearse

        _tell_rehearsal(rehearse(found, settings, books, rows, content), as_json)
        return
    acts = decide(books, REDRIVE, rows, Signed(datetime.now(UTC), who, note), content)
    _tell_acts(acts, as_json)


@quarantine_app.command("dismiss")
def quarantine_dismiss(
    positions: Positions = None,
    everything: Everything = False,
    table: Table_ = None,
    reason: Reason = None,
    source: Source = None,
    since: Since = None,
    who: Who = None,
    note: Note = "",
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Decide that records shall never count; they stay in the register, as dismissed."""
    books = _books(pipeline, project, root)
    chosen = Filter(table, reason, source, parse_moment(since) if since else None, positions or ())
    rows = _chosen(books, chosen, everything)
    _tell_acts(decide(books, DISMISS, rows, Signed(datetime.now(UTC), who, note)), as_json)


def _chosen(books: Books, chosen: Filter, everything: bool) -> list[dict[str, Any]]:
    """What somebody means; nothing said does not mean everything."""
    if chosen == Filter() and not everything:
        raise typer.BadParameter("name positions, a filter, or --all")
    return quarantined(books, chosen)


def _tell_acts(acts: list[Act], as_json: bool) -> None:
    if as_json:
        _print_json([plain(act.row()) for act in acts])
    elif acts:
        out.print(f"{len(acts):,} acts recorded; the pipeline's next batch carries them out.")
    else:
        out.print("Nothing in quarantine matches.")


def _tell_rehearsal(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json(plain(found))
        return
    shown = RichTable("position", "table", "would be", "reasons")
    for row in found["records"]:
        cells = [row["position"], row["table"], row["verdict"], "; ".join(row["reasons"])]
        shown.add_row(*map(escape, cells))
    out.print(shown if found["records"] else "Nothing in quarantine matches.")
    for change in found["changes"]:
        out.print(escape(f"{change['summary']}: {change['change']}"), soft_wrap=True)


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
    books = _books(pipeline, project, root)
    checks = run_audit(books, full)
    wrong = [check for check in checks if not check.balances]
    if as_json:
        _print_json({"balances": not wrong, "checks": [check.facts() for check in checks]})
    else:
        print_audit(out, checks, books.cut().batch)
    if wrong:
        raise typer.Exit(4)


def print_audit(console: Console, checks: list[Any], batch: int) -> None:
    table = RichTable("equation", "expected", "found", "", title=f"trial balance at batch {batch}")
    for check in checks:
        mark = "[green]=" if check.balances else f"[red]differs, first in batch {check.batch}"
        table.add_row(check.what, check.expected, check.found, mark)
    console.print(table)
    wrong = sum(not check.balances for check in checks)
    console.print(f"[red]{wrong} equations do not hold." if wrong else "[green]The books balance.")


@app.command()
def simulate(
    folder: Annotated[Path, typer.Option(help="The drop folder.")] = Path("landing"),
    trades: Annotated[int, typer.Option(help="How many trades the day has.")] = 20_000,
    seconds: Annotated[float, typer.Option(help="Play the day in so many seconds.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same day.")] = 1,
    reference: Annotated[Path, typer.Option(help="Reference data goes here.")] = Path("reference"),
    day: Annotated[str | None, typer.Option(help="The trading day, e.g. 2026-11-13.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play a trading day into a drop folder; the truth about it is written beside it first."""
    from tapeline.demo import latest_day, play_day

    try:
        today = date.fromisoformat(day) + timedelta(days=1) if day else datetime.now(UTC).date()
    except ValueError:
        raise typer.BadParameter(f"'{day}' is not a date such as 2026-11-13") from None
    sent = play_day(folder, reference, latest_day(today, trades, seed), seconds)
    if as_json:
        _print_json({"records": sent, "folder": str(folder)})
    else:
        out.print(f"{sent:,} records sent to {folder}.")


@app.command()
def demo(
    seconds: Annotated[float | None, typer.Option(help="End after this many seconds.")] = None,
    folder: Annotated[Path, typer.Option(help="The demo's own project folder.")] = Path("demo"),
    trades: Annotated[int, typer.Option(help="How many trades the day has.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same day.")] = 1,
) -> None:
    """A brokerage's trading day, live: simulator, pipeline and the trade summary."""
    from tapeline.demo import Demo

    settings = load_settings(folder.absolute())
    found = resolve(load_pipeline(DEFAULT_TARGET, settings))
    live = Demo(found, settings, out, trades, seed)
    live.run(seconds)
    books = Books(found, settings.home(found.name))
    out.print(as_table(books.read("running_totals"), "running totals"))
    out.print(as_table(books.read("due"), "due for settlement"))
    checks = run_audit(books)
    print_audit(out, checks, books.cut().batch)
    if not all(check.balances for check in checks):
        raise typer.Exit(4)


@app.command()
def drill(
    pipeline: Target = DEFAULT_TARGET,
    folder: Annotated[Path, typer.Option(help="The drill's own folder; emptied first.")] = Path(
        "drill"
    ),
    seed: Annotated[int, typer.Option(help="The same seed makes the same drill.")] = 1,
    trades: Annotated[int, typer.Option(help="How many trades the simulator makes.")] = 100_000,
    kills: Annotated[int, typer.Option(help="How often the process is killed.")] = 50,
    files: Annotated[
        Path | None, typer.Option("--input", help="Files to feed a pipeline of your own with.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Shuffle, repeat, delay, split and kill, then compare the books. Exit code 4 if not equal."""
    from tapeline.drill import Asked, Drill

    if files is None and pipeline != DEFAULT_TARGET:
        raise typer.BadParameter("say by --input which files to feed your pipeline with")
    asked = Asked(pipeline, folder.absolute(), seed, trades, kills, files and files.absolute())
    done = Drill(asked, lambda text: err.print(escape(text), soft_wrap=True)).run()
    if as_json:
        _print_json(done.facts())
    else:
        facts = done.facts()
        out.print(f"{facts['records']:,} records, {facts['kills']} kills, seed {seed}: "
                  f"{len(done.differences)} differences.")  # fmt: skip
        for difference in done.differences[:20]:
            out.print(f"[red]{escape(difference)}", soft_wrap=True)
    if done.differences:
        raise typer.Exit(4)


def main() -> None:
    """Run the command line; errors end it with their own exit code."""
    try:
        app(standalone_mode=True)
    except TapelineError as error:
        err.print("[red]error:[/red]", escape(str(error)), soft_wrap=True)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
