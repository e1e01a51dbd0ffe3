"""Commands that keep a pipeline going: pause, resume, stop, backup, restore, service."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    Note,
    Project,
    Root,
    Target,
    TargetOption,
    Who,
    books_of,
    load,
    out,
    print_json,
    progress_of,
    target_of,
)
from tapeline.run import control
from tapeline.watch.quarantine import Signed

app = typer.Typer()


@app.command()
def pause(
    pipeline: Target = DEFAULT_TARGET,
    who: Who = None,
    note: Note = "",
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Let the flow rest after its batch, also across restarts. Intake and the tape go on."""
    books = books_of(pipeline, project, root)
    facts = control.pause(books.layout, Signed(datetime.now(UTC), who, note))
    if as_json:
        print_json(facts)
    else:
        out.print(f"Paused by {escape(facts['who'])}, {facts['at']}. Nothing is published until "
                  "'tapeline resume'.")  # fmt: skip


@app.command()
def resume(
    pipeline: Target = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """End a pause: the flow works off what has come meanwhile."""
    facts = control.resume(books_of(pipeline, project, root).layout)
    if as_json:
        print_json({"paused": facts})
    elif facts is None:
        out.print("It was not paused.")
    else:
        out.print(f"Resumed; it was paused by {escape(facts['who'])}, {facts['at']}.")


@app.command()
def stop(
    pipeline: Target = DEFAULT_TARGET,
    seconds: Annotated[float, typer.Option(help="Wait so long for it to end.")] = 120.0,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """End the process that runs a pipeline, after the batch it is at work on."""
    stopped = control.stop(books_of(pipeline, project, root).layout, seconds)
    if as_json:
        print_json({"stopped": stopped})
    else:
        out.print("Stopped." if stopped else "It does not run.")


@app.command()
def backup(
    into: Annotated[Path, typer.Argument(help="Backups are folders in here.")],
    pipeline: TargetOption = DEFAULT_TARGET,
    archives: Annotated[
        bool, typer.Option("--archives", help="Also the original files that senders sent.")
    ] = False,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Copy the books, also while they are written, and prove the copy by a full audit."""
    from tapeline.run.backup import back_up

    books = books_of(pipeline, project, root)
    with progress_of(as_json) as progress:
        task = progress.add_task("copying", total=None)
        folder, made = back_up(
            books, into.absolute(), datetime.now(UTC), archives,
            lambda done, total: progress.update(task, completed=done, total=total),
        )  # fmt: skip
    if as_json:
        print_json({"folder": str(folder), **made.facts()})
    else:
        out.print(f"{escape(str(folder))}: batch {made.batch}, {len(made.files):,} files, "
                  f"{made.bytes / 1024**2:,.1f} MB. The copy balances.")  # fmt: skip


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="A folder that 'tapeline backup' made.")],
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup where there are no books, and prove it by a full audit."""
    from tapeline.run import backup as backups

    books = books_of(pipeline, project, root)
    with progress_of(as_json) as progress:
        task = progress.add_task("copying", total=None)
        made = backups.restore(
            books, backup.absolute(),
            lambda done, total: progress.update(task, completed=done, total=total),
        )  # fmt: skip
    if as_json:
        print_json({"home": str(books.layout.home), **made.facts()})
    else:
        out.print(f"{escape(str(books.layout.home))} stands at batch {made.batch}, as of {made.at}."
                  " The books balance. Deliver again what came after that.")  # fmt: skip


@app.command()
def service(
    pipeline: Target = DEFAULT_TARGET,
    every: Annotated[str, typer.Option(help="As of 'tapeline run'.")] = "asap",
    user: Annotated[str | None, typer.Option(help="Run as this user.")] = None,
    project: Project = Path(),
    root: Root = None,
) -> None:
    """Print a service file for systemd that runs a pipeline and restarts it."""
    from tapeline.service import unit

    found, settings = load(pipeline, project, root)
    typer.echo(unit(found, target_of(pipeline, project), settings, every, user), nl=False)
