"""Commands that plan, run, watch and show a pipeline."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as RichTable

from tapeline.books import Books
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    Project,
    Root,
    Target,
    books_of,
    err,
    load,
    out,
    print_json,
)
from tapeline.declare.duration import parse_duration
from tapeline.plan.graph import view_inputs
from tapeline.run.control import paused
from tapeline.show import as_words
from tapeline.watch.pulls import read_pulls, words_of
from tapeline.watch.sizes import sizes_of
from tapeline.watch.status import read_status

app = typer.Typer()


@app.command()
def plan(
    pipeline: Target = DEFAULT_TARGET,
    check: Annotated[bool, typer.Option(help="Also let Spark analyse every step.")] = False,
    project: Project = Path(),
    as_json: AsJson = False,
) -> None:
    """Say what a pipeline means, and refuse what is wrong with it, before any data is touched."""
    found, settings = load(pipeline, project, None)
    if check:
        from tapeline.run.references import rows_by_name
        from tapeline.run.session import build_session
        from tapeline.run.steps import prepare

        prepare(build_session(settings), found, rows_by_name(found, settings.project), settings)
    steps = [
        (kind, item.name, item.connector.path, str(item.where))
        for kind, items in (
            ("source", found.pipeline.sources),
            ("reference", found.pipeline.references),
        )
        for item in items.values()
    ]
    steps += [
        ("pull", one.name, f"{one.system.asks}, into {one.into}", str(one.where))
        for one in found.pipeline.pulls.values()
    ]
    for step in (*found.tables, *found.summaries):
        kind = "table" if step in found.tables else "summary"
        steps.append((kind, step.name, ", ".join(i.name for i in step.inputs), str(step.where)))
    steps += [
        ("view", view.name, ", ".join(view_inputs(found.pipeline, view)), str(view.where))
        for view in found.views
    ]
    steps += [
        ("alert", alert.name, alert.reads, str(alert.where))
        for alert in found.pipeline.alerts.values()
    ]
    steps += [
        ("sink", sink.name, f"{sink.reads}, to {sink.connector.goes_to}", str(sink.where))
        for sink in found.pipeline.sinks.values()
    ]
    if as_json:
        names = ("kind", "name", "reads", "where")
        print_json([dict(zip(names, step, strict=True)) for step in steps])
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
    found, settings = load(pipeline, project, root)
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
                "stopped": runner.stopping,
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
        print_json(facts)
    elif once:
        if facts["stopped"]:
            out.print("Stopped before all was worked off; the next run goes on.")
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
    books = books_of(pipeline, project, root)
    cut = books.cut()
    facts = read_status(books.layout.status) or {"running": False, "batch": cut.batch}
    facts["paused"] = paused(books.layout)  # known at once, before the flow takes notice
    facts["bytes"] = sizes_of(books.layout, datetime.now(UTC))
    pulling = read_pulls(books.layout)
    if pulling["pulls"]:
        facts["pulling"] = pulling
    facts["totals"] = books.totals()
    if as_json:
        print_json(facts)
        return
    table = RichTable("what", "value", title=f"pipeline {books.plan.name}", show_header=False)
    by_partition = {n: one.pop("partitions", {}) for n, one in facts.get("sources", {}).items()}
    for key, value in facts.items():
        if key not in ("pipeline", "totals", "pulling") and value not in (None, {}, []):
            words = str(value) if key == "pid" else as_words(value)
            table.add_row(key.replace("_", " "), escape(words))
    out.print(table)
    for name, partitions in by_partition.items():
        for partition, lag in partitions.items():
            out.print(f"{name} {partition}: {_lag_words(lag)}", highlight=False)
    for pull in pulling["pulls"]:
        words = words_of(pull, pulling["running"])
        out.print(escape(f"pull {pull['pull']}: {words}"), highlight=False, soft_wrap=True)
    for name, totals in facts["totals"].items():
        verdicts = totals.get("verdicts")
        if verdicts:
            out.print(f"{name}: " + ", ".join(f"{k} {v:,}" for k, v in sorted(verdicts.items())))


def _lag_words(lag: dict[str, Any]) -> str:
    if not lag["lag_records"]:
        return "all is in the books"
    soon = lag["catch_up_seconds"]
    when = f"caught up in about {soon:,.0f} s" if soon is not None else "not catching up"
    return f"{lag['lag_records']:,} behind, the oldest by {lag['lag_seconds']:,.1f} s; {when}"


@app.command()
def doctor(
    pipeline: Target = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Look at the machine and the books, each finding with its remedy. Exit code 3 if ill."""
    from tapeline.doctor import examine

    found, settings = load(pipeline, project, root)
    books = Books(found, settings.home(found.name))
    findings = examine(books, settings, datetime.now(UTC))
    if as_json:
        print_json([finding.facts() for finding in findings])
    else:
        table = RichTable("", "what", "found", "what to do", title=f"pipeline {found.name}")
        marks = {"well": "[green]well", "soon": "[yellow]soon", "ill": "[red]ill"}
        for one in findings:
            table.add_row(marks[one.state], *map(escape, (one.what, one.words, one.remedy)))
        out.print(table)
    if any(finding.state == "ill" for finding in findings):
        raise typer.Exit(3)


@app.command()
def serve(
    pipeline: Target = DEFAULT_TARGET,
    address: Annotated[
        str | None, typer.Option(help="Listen here; beyond loopback a token is needed.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Listen on this port; 0 for any.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token; made if it is not there.")
    ] = None,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show the books: live pages and an API, without Spark, until Ctrl-C."""
    from tapeline.serve.app import Server

    found, settings = load(pipeline, project, root)
    chosen = replace(
        settings.serve,
        address=address or settings.serve.address,
        port=settings.serve.port if port is None else port,
        token_file=str(token_file) if token_file else settings.serve.token_file,
    )
    server = Server(Books(found, settings.home(found.name)), chosen, settings.project)
    if as_json:
        print_json({"address": server.address})
    else:
        out.print(f"[bold]{server.address}[/bold] shows {found.name}; Ctrl-C stops it.")
    server.run()
