"""Commands that try the product out: simulated trades, the demo, drills."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tapeline.books import Books
from tapeline.cli.options import (
    DEFAULT_TARGET,
    DEMO,
    AsJson,
    Target,
    err,
    out,
    print_json,
)
from tapeline.cli.reading import print_audit
from tapeline.plan import load_pipeline, resolve
from tapeline.settings import activate, load_settings
from tapeline.show import as_table
from tapeline.watch.audit import audit as run_audit

app = typer.Typer()


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The project's name, and its folder's.")],
    sample: Annotated[
        Path | None,
        typer.Option("--from", help="A sample file, JSON lines or CSV: propose a pipeline for it."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where the project's folder is made.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Make a project of your own: a pipeline, sample data, settings and a test that passes."""
    from tapeline.new import coffee, look, write_project

    proposal = look(sample) if sample else coffee()
    written = write_project(folder / name, name, proposal)
    if as_json:
        print_json({"files": [str(path) for path in written], "key": proposal.key,
                    "time": proposal.time})  # fmt: skip
        return
    out.print(f"{folder / name}: {', '.join(str(p.relative_to(folder / name)) for p in written)}")
    out.print(f"key: {proposal.key or 'none'}, time: {proposal.time or 'none'}; see pipeline.py")
    out.print(f"Next: cd {folder / name} && tapeline run pipeline.py --once")


@app.command()
def simulate(
    folder: Annotated[Path, typer.Option(help="The drop folder.")] = Path("landing"),
    topic: Annotated[
        str | None, typer.Option(help="Write to this topic of kafka.brokers, and to no folder.")
    ] = None,
    trades: Annotated[int, typer.Option(min=1, help="How many trades the day has.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=0, help="Play the day in so many seconds.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same day.")] = 1,
    reference: Annotated[Path, typer.Option(help="Reference data goes here.")] = Path("reference"),
    day: Annotated[str | None, typer.Option(help="The trading day, e.g. 2026-11-13.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play a trading day into a drop folder or a topic; its truth is written down first."""
    from tapeline.connect.kafka import client_options
    from tapeline.demo import latest_day, play_day
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
        out.print(f"{sent:,} records sent to {f'topic {topic}' if topic else folder}.")


@app.command()
def demo(
    seconds: Annotated[float | None, typer.Option(help="End after this many seconds.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="The demo's own project folder; demo or demo-kafka unsaid."),
    ] = None,
    trades: Annotated[int, typer.Option(min=1, help="How many trades the day has.")] = 20_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same day.")] = 1,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Through a topic of a broker of the demo's own.")
    ] = False,
) -> None:
    """A brokerage's trading day, live: simulator, pipeline and the trade summary."""
    from tapeline.demo import Demo, demo_broker

    project = (folder or Path("demo-kafka" if kafka else "demo")).absolute()
    # Told to end, it ends as after Ctrl-C: no broker and no server stay behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with demo_broker(project, out) if kafka else nullcontext():
        settings = load_settings(project)
        found = resolve(load_pipeline(DEMO, settings))
        Demo(found, settings, out, trades, seed).run(seconds)
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

    pipeline = pipeline or DEMO
    if files is None and pipeline != DEMO:
        raise typer.BadParameter("say by --input which files to feed your pipeline with")
    asked = Asked(pipeline, folder.absolute(), seed, trades, kills, files and files.absolute())
    done = Drill(asked, lambda text: err.print(escape(text), soft_wrap=True)).run()
    if as_json:
        print_json(done.facts())
    else:
        facts = done.facts()
        out.print(f"{facts['records']:,} records, {facts['kills']} kills, seed {seed}: "
                  f"{len(done.differences)} differences.")  # fmt: skip
        for difference in done.differences[:20]:
            out.print(f"[red]{escape(difference)}", soft_wrap=True)
    if done.differences:
        raise typer.Exit(4)
