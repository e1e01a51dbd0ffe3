"""Commands of the broker for development."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tapeline.cli.commands import Commands
from tapeline.cli.options import AsJson, out, print_json
from tapeline.extras import require
from tapeline.show import readable

app = Commands(help="Run a local Kafka broker for development.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option(help="Folder of the broker's data and logs.")]
DEFAULT_FOLDER = Path(".tapeline/broker")


@app.command("start")
def broker_start(
    folder: Folder = DEFAULT_FOLDER,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port (default: any free port).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the broker and wait until it is ready. Does nothing if it is already running."""
    require("kafka", "the broker")
    from tapeline.broker import Broker

    broker = Broker(folder)
    started = broker.start(port)
    if as_json:
        print_json({"started": started, **broker.status().facts()})
        return
    words = "Broker started" if started else "Broker already running"
    out.print(f"{words} at {broker.bootstrap_servers}, in {readable(str(folder))}.")


@app.command("stop")
def broker_stop(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Stop the broker. Its topics are kept for the next start."""
    from tapeline.broker import Broker

    ending = Broker(folder).stop()
    if as_json:
        print_json({"ending": ending})
    elif ending == "killed":
        out.print("The broker did not stop in time and was killed. Its next start recovers.")
    else:
        out.print(f"Broker {ending}.")


@app.command("status")
def broker_status(folder: Folder = DEFAULT_FOLDER, as_json: AsJson = False) -> None:
    """Show whether the broker is running, its address and its topics."""
    from tapeline.broker import Broker

    status = Broker(folder).status()
    if as_json:
        print_json(status.facts())
    elif not status.running:
        out.print(f"No broker is running in {readable(str(folder))}.")
    else:
        words = "running" if status.answers else "running but not answering"
        out.print(f"Broker {words} at {status.bootstrap_servers}, process {status.pid}.")
        for name, partitions in status.topics.items():
            out.print(f"topic {readable(name)}, partitions: {partitions}")


@app.command("topic")
def broker_topic(
    name: Annotated[str, typer.Argument(help="Name of the topic.")],
    partitions: Annotated[int, typer.Option(help="Number of partitions.")] = 1,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Create a topic. Does nothing if the topic already exists."""
    from tapeline.broker import Broker

    broker = Broker(folder)
    made = broker.make_topic(name, partitions)
    if as_json:
        print_json({"topic": name, "partitions": partitions, "made": made})
    else:
        words = "created" if made else "already exists"
        out.print(f"Topic {readable(name)} {words}, partitions: {partitions}.")
