"""Commands that keep a pipeline going: pause, resume, stop, backup, restore, service."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tapeline.cli.commands import Commands
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    NoteOption,
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
from tapeline.show import readable
from tapeline.words import counted

app = Commands()


@app.command()
def pause(
    pipeline: Target = DEFAULT_TARGET,
    who: Who = None,
    note: NoteOption = "",
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Pause publishing after the current batch.

    The pipeline stays paused across restarts; input is still recorded.
    """
    from tapeline.books.quarantine import Actor
    from tapeline.operate import control

    books = books_of(pipeline, project, root)
    made = control.pause(books.layout, Actor(datetime.now(UTC), who, note))
    if as_json:
        print_json(made.as_dict())
    else:
        out.print(f"Paused by {readable(made.who)} at {made.at}. Resume with "
                  "'tapeline resume'.")  # fmt: skip


@app.command()
def resume(
    pipeline: Target = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Resume publishing and process what arrived during the pause."""
    from tapeline.operate import control

    ended = control.resume(books_of(pipeline, project, root).layout)
    if as_json:
        print_json({"paused": ended.as_dict() if ended else None})
    elif ended is None:
        out.print("Not paused.")
    else:
        out.print(f"Resumed. Paused by {readable(ended.who)} at {ended.at}.")


@app.command()
def stop(
    pipeline: Target = DEFAULT_TARGET,
    seconds: Annotated[
        float, typer.Option(help="Maximum seconds to wait for the process to exit.")
    ] = 120.0,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Stop a running pipeline after its current batch."""
    from tapeline.operate import control

    stopped = control.stop(books_of(pipeline, project, root).layout, seconds)
    if as_json:
        print_json({"stopped": stopped})
    else:
        out.print("Stopped." if stopped else "Not running.")


@app.command()
def backup(
    into: Annotated[
        Path, typer.Argument(help="Folder for backups; each backup is a new folder in it.")
    ],
    pipeline: TargetOption = DEFAULT_TARGET,
    archives: Annotated[
        bool, typer.Option("--archives", help="Also copy the original input files.")
    ] = False,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Copy the books and audit the copy. Works while the pipeline is running."""
    from tapeline.operate.backup import back_up

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
        size = f"{counted(len(made.files), 'file')}, {made.bytes / 1024**2:,.1f} MB"
        out.print(f"{readable(str(folder))}: last batch {made.batch}, {size}. The copy balances.")


@app.command()
def restore(
    backup: Annotated[Path, typer.Argument(help="Backup folder, made by 'tapeline backup'.")],
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty folder and audit it."""
    from tapeline.operate import backup as backups

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
        home = readable(str(books.layout.home))
        out.print(f"Restored to {home}. Last batch: {made.batch}, backed up at {made.at}. "
                  "The books balance. Send input that arrived later again.")  # fmt: skip


@app.command()
def service(
    pipeline: Target = DEFAULT_TARGET,
    every: Annotated[str, typer.Option(help="Same as for 'tapeline run'.")] = "asap",
    user: Annotated[
        str | None, typer.Option(help="User to run as (default: current user).")
    ] = None,
    project: Project = Path(),
    root: Root = None,
) -> None:
    """Print a systemd unit that runs a pipeline and restarts it when it fails."""
    from tapeline.operate.service import unit

    found, settings = load(pipeline, project, root)
    typer.echo(unit(found, target_of(pipeline, project), settings, every, user), nl=False)
