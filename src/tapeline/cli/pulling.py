"""The command that pulls from outside systems."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

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
from tapeline.declare.duration import parse_duration

app = typer.Typer()


@app.command()
def pull(
    pipeline: Target = DEFAULT_TARGET,
    once: Annotated[bool, typer.Option("--once", help="Fetch what is there, then end.")] = False,
    every: Annotated[
        str, typer.Option(help="How long to wait before asking a system that had nothing new.")
    ] = "10 seconds",
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Bring what is new in outside systems into the drop folders, without Spark, until Ctrl-C."""
    from tapeline.run.collector import Collector

    interval = parse_duration(every)
    found, settings = load(pipeline, project, root)
    say = lambda text: err.print(escape(text), soft_wrap=True)  # noqa: E731 - one line of printing
    with Collector(found, settings, interval, say) as collector:
        signal.signal(signal.SIGTERM, lambda *_: collector.stop())
        signal.signal(signal.SIGINT, lambda *_: collector.stop())
        if not once and not as_json:
            err.print("Pulling; Ctrl-C stops it. See 'tapeline status'.")
        collector.run(once)
        facts, failure = collector.facts(), collector.failure
    if as_json:
        print_json({"pulls": facts})
    else:
        for one in facts:
            out.print(
                escape(f"{one['pull']}: {one['records']:,} records in {one['files']:,} files into "
                       f"{one['into']}; it stands at {one['position'] or 'the beginning'}."),
                soft_wrap=True,
            )  # fmt: skip
    if failure is not None:
        raise failure
