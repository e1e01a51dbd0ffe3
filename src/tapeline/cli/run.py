"""Commands that run, check and serve a pipeline."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.compare import run_into
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    Project,
    Root,
    Target,
    err,
    load,
    out,
    print_json,
)
from tapeline.cli.pandas_aside import leave_pandas_aside
from tapeline.declare.duration import parse_duration
from tapeline.extras import require
from tapeline.show import readable
from tapeline.terminal import styled
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.books.alerts import EngineAlert
    from tapeline.operate.runner import Runner
    from tapeline.plan import Plan
    from tapeline.settings import Settings

app = Commands()


@app.command()
def run(
    pipeline: Target = DEFAULT_TARGET,
    once: Annotated[
        bool, typer.Option("--once", help="Process everything waiting, then exit.")
    ] = False,
    every: Annotated[
        str, typer.Option(help="When to process a batch: 'asap', or an interval: '15 minutes'.")
    ] = "asap",
    seconds: Annotated[
        float | None, typer.Option(help="Exit after this many seconds (default: never).")
    ] = None,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="Compute everything on the tape in one pass, without books, then exit."
        ),
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(help="Folder for the results of --batch (default: NAME-batch in the root)."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply changed code first, without asking.")
    ] = False,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until Ctrl-C, or once with --once."""
    if batch or into:
        run_into(load(pipeline, project, root), into, batch, as_json)
        return
    interval = None if every == "asap" else parse_duration(every)
    found, settings = load(pipeline, project, root)
    if not as_json:
        err.print("Starting Spark for", styled(found.name, "bold"), "...")
    from tapeline.operate.short_run import is_short
    from tapeline.spark.jvm import prepare_jvm

    # Java starts while Python imports the rest.
    prepare_jvm(settings, short=once and not apply and is_short(found, settings))
    with _runner(found, settings, apply, as_json, once) as runner:
        runner.on_alert = _say_alert
        signal.signal(signal.SIGTERM, lambda *_: runner.stop())
        if runner.spark_ui and not as_json:
            err.print("Spark's UI is at", styled(runner.spark_ui, "bold"))
        if once:
            done = runner.run_once()
            facts = {
                "batches": len(done),
                "records": sum(p.records for p in done),
                "batch": runner.flow.published_batch,
                "stopped": runner.stopping,
                "rejected": len(runner.watch.undecided),
            }
        else:
            if not as_json:
                err.print("Running. Press Ctrl-C to stop; 'tapeline status' shows progress.")
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
            out.print("Stopped before everything was processed. The next run continues.")
        out.print(f"{counted(facts['records'], 'record')} in {counted(facts['batches'], 'batch')}. "
                  f"Last batch: {facts['batch']}.")  # fmt: skip
        if facts["rejected"]:
            words = f"{counted(facts['rejected'], 'rejected file')}: see 'tapeline deliveries'."
            out.print(styled(words, "red"))


def _runner(found: Plan, settings: Settings, apply: bool, as_json: bool, once: bool) -> Runner:
    """What runs the pipeline; code that the books were not made by is shown, or applied first."""
    from tapeline.books.estimates import noticed_changes
    from tapeline.books.layout import Layout
    from tapeline.books.meanings import ChangedCodeError
    from tapeline.cli.plan import applied, print_changes
    from tapeline.operate.runner import Runner

    try:
        return Runner(found, settings, once=once)
    except ChangedCodeError:
        if not apply:
            if not as_json:
                print_changes(noticed_changes(found, Layout(settings.home(found.name))) or [])
            raise
    applied(found, settings, (None, "run --apply"), (True, False), as_json)
    return Runner(found, settings, once=once)


def _say_alert(event: str, alert: EngineAlert) -> None:
    colour = "red" if event == "raised" else "green"
    err.print(styled(f"alert {event}:", colour), readable(alert.about), soft_wrap=True)


@app.command()
def doctor(
    pipeline: Target = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Check the machine and the books.

    Each problem comes with a fix. Exits with 3 if something is broken.
    """
    from tapeline.books import Books
    from tapeline.operate.doctor import examine

    found, settings = load(pipeline, project, root)
    leave_pandas_aside()
    books = Books(found, settings.home(found.name))
    findings = examine(books, settings, datetime.now(UTC))
    if as_json:
        print_json([finding.facts() for finding in findings])
    else:
        table = RichTable("", "check", "found", "fix", title=f"pipeline {found.name}")
        colours = {"ok": "green", "warning": "yellow", "error": "red"}
        for one in findings:
            cells = map(readable, (one.what, one.words, one.remedy))
            table.add_row(styled(one.state, colours[one.state]), *cells)
        out.print(table)
    if any(finding.state == "error" for finding in findings):
        raise typer.Exit(3)


@app.command()
def serve(
    pipeline: Target = DEFAULT_TARGET,
    address: Annotated[
        str | None,
        typer.Option(help="Address to listen on; needs a token unless loopback."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 means any free port.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token; created if it does not exist.")
    ] = None,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Serve live pages and an API until Ctrl-C. Needs no Spark."""
    require("serve", "tapeline serve")
    from tapeline.books import Books
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
        out.print(styled(server.address, "bold"), f"serves {found.name}. Press Ctrl-C to stop.")
    server.run()
