"""Other ways to compute a pipeline's numbers, beside its books."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    Project,
    Root,
    TargetOption,
    err,
    load,
    out,
    print_json,
)
from tapeline.errors import QuestionError
from tapeline.show import readable
from tapeline.terminal import as_words, styled
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.plan import Plan
    from tapeline.settings import Settings

app = Commands()


@app.command()
def compare(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder with other results (default: that of 'run --batch')."),
    ] = None,
    pipeline: TargetOption = DEFAULT_TARGET,
    limit: Annotated[int, typer.Option(min=1, help="Maximum differences to print.")] = 100,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """List the numbers that differ between the books and other results.

    Exits with 4 if a number differs.
    """
    from tapeline.books import Books
    from tapeline.books.compare import compare as compared

    plan, settings = load(pipeline, project, root)
    place = folder or folder_of(plan, settings)
    found = compared(Books(plan, settings.home(plan.name)), place)
    shown = found.differences[:limit]
    if as_json:
        print_json({**found.as_dict(), "differences": [one.as_dict() for one in shown]})
    else:
        _print(found.notes, counted(found.numbers, "number"), len(found.differences))
        table = RichTable("name", "key", "number", "books", found.by, "why")
        for one in shown:
            key = ", ".join(f"{name}={as_words(value)}" for name, value in one.key.items())
            numbers = (as_words(one.books), as_words(one.other))
            table.add_row(*map(readable, (one.name, key, one.measure, *numbers, one.why)))
        if shown:
            out.print(table)
    if found.differences:
        raise typer.Exit(4)


def _print(notes: list[str], numbers: str, differing: int) -> None:
    for note in notes:
        out.print(readable(note), highlight=False, soft_wrap=True)
    if differing:
        out.print(styled(f"{counted(differing, 'number')} of {numbers} differ.", "red"))
    else:
        out.print(styled(f"All {numbers} agree.", "green"))


def folder_of(plan: Plan, settings: Settings) -> Path:
    """Where `run --batch` writes: beside the books, never inside them."""
    return settings.home(plan.name).with_name(f"{plan.name}-batch")


def run_into(loaded: tuple[Plan, Settings], into: Path | None, batch: bool, as_json: bool) -> None:
    """Compute the results that `compare` reads."""
    if not batch:
        raise QuestionError("--into is an option of --batch. Add --batch.")
    from tapeline.operate.one_pass import run_batch

    plan, settings = loaded
    folder = into or folder_of(plan, settings)
    if not as_json:
        err.print("Starting Spark for", styled(plan.name, "bold"), "...")
    counts = run_batch(plan, settings, folder)
    if as_json:
        print_json({"folder": str(folder), "rows": counts})
        return
    for name, rows in counts.items():
        out.print(f"{readable(name)}: {counted(rows, 'row')}", highlight=False)
    out.print(f"Results are in {readable(str(folder))}. Compare them: tapeline compare")
