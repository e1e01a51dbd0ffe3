"""Commands that keep a pipeline going: pause, resume, stop, backup, restore, service."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tapeline.cli.commands import Commands
from tapeline.cli.option_groups import BooksLocation, PipelineLocation, grouped
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    NoteOption,
    Project,
    Root,
    Target,
    Who,
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
@grouped
def pause(
    place: PipelineLocation,
    who: Who = None,
    note: NoteOption = "",
    as_json: AsJson = False,
) -> None:
    """Pause publishing after the current batch.

    The pipeline stays paused across restarts; input is still recorded.
    """
    from tapeline.books.quarantine import Actor
    from tapeline.operate import control

    books = place.books()
    made = control.pause(books.layout, Actor(datetime.now(UTC), who, note))
    if as_json:
        print_json(made.as_dict())
    else:
        out.print(f"Paused by {readable(made.who)} at {made.at}. Resume with "
                  "'tapeline resume'.")  # fmt: skip


@app.command()
@grouped
def resume(
    place: PipelineLocation,
    as_json: AsJson = False,
) -> None:
    """Resume publishing and process what arrived during the pause."""
    from tapeline.operate import control

    ended = control.resume(place.books().layout)
    if as_json:
        print_json({"paused": ended.as_dict() if ended else None})
    elif ended is None:
        out.print("Not paused.")
    else:
        out.print(f"Resumed. Paused by {readable(ended.who)} at {ended.at}.")


@app.command()
@grouped
def stop(
    place: PipelineLocation,
    seconds: Annotated[
        float, typer.Option(help="Maximum seconds to wait for the process to exit.")
    ] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Stop a running pipeline after its current batch."""
    from tapeline.operate import control

    stopped = control.stop(place.books().layout, seconds)
    if as_json:
        print_json({"stopped": stopped})
    else:
        out.print("Stopped." if stopped else "Not running.")


@app.command()
@grouped
def backup(
    place: BooksLocation,
    into: Annotated[
        Path, typer.Argument(help="Folder for backups; each backup is a new folder in it.")
    ],
    archives: Annotated[
        bool, typer.Option("--archives", help="Also copy the original input files.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy the books and audit the copy. Works while the pipeline is running."""
    from tapeline.operate.backup import back_up

    books = place.books()
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
@grouped
def restore(
    place: BooksLocation,
    backup: Annotated[Path, typer.Argument(help="Backup folder, made by 'tapeline backup'.")],
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty folder and audit it."""
    from tapeline.operate import backup as backups

    books = place.books()
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
