"""Commands to try Tapeline: new projects, simulated trades, the demo and drills."""

from __future__ import annotations

import shlex
import signal
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from tapeline.cli.commands import Commands
from tapeline.cli.options import (
    DEFAULT_TARGET,
    DEMO,
    AsJson,
    Target,
    err,
    out,
    print_json,
)
from tapeline.cli.read import print_audit
from tapeline.extras import require
from tapeline.settings import activate, load_settings
from tapeline.show import as_table, readable
from tapeline.terminal import styled
from tapeline.words import counted

app = Commands()


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the project and its folder.")],
    sample: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Sample file to propose a pipeline for: JSON or CSV, also compressed."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder to create the project in.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Create a project with a pipeline, sample data, settings and a passing test."""
    from tapeline.operate.new import coffee, look, write_project

    proposal = look(sample) if sample else coffee()
    written = write_project(folder / name, name, proposal)
    if as_json:
        print_json({"files": [str(path) for path in written], "key": proposal.key,
                    "time": proposal.time})  # fmt: skip
        return
    made = readable(str(folder / name))
    out.print(f"Created {made}: {', '.join(str(p.relative_to(folder / name)) for p in written)}")
    key, time = readable(proposal.key or "none"), readable(proposal.time or "none")
    out.print(f"key: {key}, time: {time}; see pipeline.py")
    out.print(f"Next: cd {made} && tapeline run pipeline.py --once")


@app.command()
def simulate(
    folder: Annotated[Path, typer.Option(help="Input folder to write to.")] = Path("landing"),
    topic: Annotated[
        str | None, typer.Option(help="Kafka topic to write to, instead of a folder.")
    ] = None,
    trades: Annotated[int, typer.Option(min=1, help="Number of trades.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=0, help="How many seconds the day takes.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed makes the same day.")] = 1,
    reference: Annotated[Path, typer.Option(help="Folder for reference data.")] = Path("reference"),
    day: Annotated[
        str | None, typer.Option(help="Trading day, e.g. 2026-11-13 (default: the latest one).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a trading day into a folder or a topic. The expected results are saved first."""
    require("trades", "tapeline simulate")
    if topic:
        require("kafka", "tapeline simulate --topic")
    from tapeline.connect.kafka import client_options
    from tapeline.operate.demo import latest_day, play_day
    from tapeline.trades.topic_delivery import Topic

    settings = load_settings(Path.cwd())
    activate(settings)  # the option trades.markets
    try:
        today = date.fromisoformat(day) + timedelta(days=1) if day else datetime.now(UTC).date()
    except ValueError:
        raise typer.BadParameter(f"'{day}' is not a date such as 2026-11-13") from None
    target = Topic(topic, client_options(settings.kafka)) if topic else folder
    sent = play_day(target, reference, latest_day(today, trades, seed), seconds)
    if as_json:
        where = {"topic": topic} if topic else {"folder": str(folder)}
        print_json({"records": sent, **where})
    else:
        goal = readable(f"topic {topic}" if topic else str(folder))
        out.print(f"{counted(sent, 'record')} sent to {goal}.")


@app.command()
def demo(
    seconds: Annotated[
        float | None, typer.Option(help="Exit after this many seconds (default: never).")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Project folder of the demo (default: demo, or demo-kafka)."),
    ] = None,
    trades: Annotated[int, typer.Option(min=1, help="Number of trades.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed makes the same day.")] = 1,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Send trades through Kafka; starts a local broker.")
    ] = False,
    spark_ui: Annotated[
        bool, typer.Option("--spark-ui", help="Also show Spark's own UI, on loopback.")
    ] = False,
) -> None:
    """Run a live demo: simulate a brokerage's trading day and show its trade summary."""
    for extra in ("trades", "serve", *(["kafka"] if kafka else [])):
        require(extra, "tapeline demo")
    from tapeline.books import Books
    from tapeline.books.audit import audit as run_audit
    from tapeline.operate.demo import Demo, demo_broker
    from tapeline.plan import load_pipeline, resolve

    project = (folder or Path("demo-kafka" if kafka else "demo")).absolute()
    # SIGTERM works like Ctrl-C, so that the broker and the server are stopped too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with demo_broker(project, out) if kafka else nullcontext():
        settings = load_settings(project)
        if spark_ui:
            settings = replace(settings, spark=replace(settings.spark, ui=True))
        found = resolve(load_pipeline(DEMO, settings))
        Demo(found, settings, out, trades, seed).run(seconds)
    books = Books(found, settings.home(found.name))
    out.print(as_table(books.read("running_totals"), "running totals"))
    out.print(as_table(books.read("due"), "due for settlement"))
    checks = run_audit(books)
    print_audit(out, checks, books.cut().batch)
    where = "" if settings.project == Path.cwd() else f" --project {_shell(settings.project)}"
    again = f"Open the pages again with: tapeline serve {DEMO}{where}"
    out.print(readable(again), soft_wrap=True)
    if not all(check.balances for check in checks):
        raise typer.Exit(4)


def _shell(project: Path) -> str:
    """A folder as it is written in a shell, relative to the current one where it is inside it."""
    inside = project.is_relative_to(Path.cwd())
    return shlex.quote(str(project.relative_to(Path.cwd()) if inside else project))


@app.command()
def drill(
    pipeline: Target = DEFAULT_TARGET,
    folder: Annotated[
        Path, typer.Option(help="Working folder of the drill; emptied first.")
    ] = Path("drill"),
    seed: Annotated[int, typer.Option(help="Random seed; the same seed makes the same drill.")] = 1,
    trades: Annotated[int, typer.Option(help="Number of simulated trades.")] = 100_000,
    kills: Annotated[int, typer.Option(help="How often to kill the process.")] = 50,
    files: Annotated[
        Path | None, typer.Option("--input", help="Input files for your own pipeline.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test a pipeline against disorder and crashes.

    Shuffles, repeats, delays and splits the input, kills the process, then compares the books.
    Exits with 4 if they differ.
    """
    from tapeline.operate.drill import Drill, DrillOptions

    pipeline = pipeline or DEMO
    if files is None and pipeline != DEMO:
        raise typer.BadParameter("your own pipeline needs --input with its input files")
    asked = DrillOptions(
        pipeline, folder.absolute(), seed, trades, kills, files and files.absolute()
    )
    done = Drill(asked, lambda text: err.print(text, soft_wrap=True)).run()
    if as_json:
        print_json(done.facts())
    else:
        facts = done.facts()
        out.print(f"{counted(facts['records'], 'record')}, {counted(facts['kills'], 'kill')}, "
                  f"seed {seed}: {counted(len(done.differences), 'difference')}.")  # fmt: skip
        for difference in done.differences[:20]:
            out.print(styled(readable(difference), "red"), soft_wrap=True)
    if done.differences:
        raise typer.Exit(4)
