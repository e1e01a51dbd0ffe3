"""Commands of the broker for development."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tapeline.cli.options import AsJson, out, print_json

app = typer.Typer(help="A real Kafka broker for development, on loopback.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option(help="The broker's own folder.")]
DEFAULT_FOLDER = Path(".tapeline/broker")


@app.command("start")
def broker_start(
    folder: Folder = DEFAULT_FOLDER,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Listen on this port; any free one unsaid.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a broker and wait until it answers; nothing happens when it runs already."""
    from tapeline.broker import Broker

    broker = Broker(folder)
    started = broker.start(port)
    if as_json:
        print_json({"started": started, **broker.status().facts()})
        return
    words = "The broker runs" if started else "The broker was running already"
    out.print(f"{words} at [bold]{broker.bootstrap_servers}[/bold], in {escape(str(folder))}.")


@app.command("stop")
def broker_stop(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Stop the broker; its topics stay and are there after the next start."""
    from tapeline.broker import Broker

    ending = Broker(folder).stop()
    if as_json:
        print_json({"ending": ending})
    elif ending == "killed":
        out.print("The broker did not end by itself and was killed; its next start recovers.")
    else:
        out.print(f"The broker {ending}.")


@app.command("status")
def broker_status(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Whether the broker runs, where, and which topics it holds."""
    from tapeline.broker import Broker

    status = Broker(folder).status()
    if as_json:
        print_json(status.facts())
    elif not status.running:
        out.print(f"No broker runs in {escape(str(folder))}.")
    else:
        words = "runs" if status.answers else "runs but does not answer"
        out.print(f"The broker {words} at {status.bootstrap_servers}, process {status.pid}.")
        for name, partitions in status.topics.items():
            out.print(f"topic {escape(name)}, partitions: {partitions}")


@app.command("topic")
def broker_topic(
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    partitions: Annotated[int, typer.Option(help="How many partitions it has.")] = 1,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Make a topic; nothing happens when it is there already."""
    from tapeline.broker import Broker

    broker = Broker(folder)
    made = broker.make_topic(name, partitions)
    if as_json:
        print_json({"topic": name, "partitions": partitions, "made": made})
    else:
        words = "made" if made else "was there already"
        out.print(f"Topic {escape(name)} {words}, partitions: {partitions}.")
