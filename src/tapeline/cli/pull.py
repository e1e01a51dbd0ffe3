"""The command that pulls from outside systems."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from tapeline.cli.commands import Commands
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
from tapeline.show import readable
from tapeline.words import counted

app = Commands()


@app.command()
def pull(
    pipeline: Target = DEFAULT_TARGET,
    once: Annotated[bool, typer.Option("--once", help="Fetch everything new, then exit.")] = False,
    every: Annotated[
        str, typer.Option(help="How often to ask a system that had nothing new.")
    ] = "10 seconds",
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Copy new records from other systems into the input folders until Ctrl-C. Needs no Spark."""
    from tapeline.operate.puller import Puller

    interval = parse_duration(every)
    found, settings = load(pipeline, project, root)
    say = lambda text: err.print(text, soft_wrap=True)  # noqa: E731 - one line of printing
    with Puller(found, settings, interval, say) as collector:
        signal.signal(signal.SIGTERM, lambda *_: collector.stop())
        signal.signal(signal.SIGINT, lambda *_: collector.stop())
        if not once and not as_json:
            err.print("Pulling. Press Ctrl-C to stop; 'tapeline status' shows progress.")
        collector.run(once)
        pulls, failure = collector.status(), collector.failure
    if as_json:
        print_json({"pulls": [one.as_dict() for one in pulls]})
    else:
        for one in pulls:
            taken = (
                f"{counted(one.records, 'record')} in {counted(one.files, 'file')} into {one.into}"
            )
            place = one.position or "start"
            out.print(readable(f"{one.pull}: {taken}; position: {place}."), soft_wrap=True)
    if failure is not None:
        raise failure
