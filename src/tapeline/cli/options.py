"""Options, consoles and loading of pipelines, shared by the commands."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapeline.cli.pandas_aside import leave_pandas_aside
from tapeline.errors import DeclarationError
from tapeline.settings import Settings, load_settings
from tapeline.show import as_csv, as_json, as_table, plain
from tapeline.store.files import is_there
from tapeline.terminal import Terminal, write_exact

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.progress import Progress

    from tapeline.books import Books
    from tapeline.plan import Plan

# A pipe has no width: piped output is not truncated.
out = Terminal(width=None if sys.stdout.isatty() else 160)
err = Terminal(stderr=True)

Target = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="Pipeline file or module.",
        show_default="pipeline.py in the project",
    ),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--pipeline",
        "-p",
        help="Pipeline file or module.",
        show_default="pipeline.py in the project",
    ),
]
Project = Annotated[
    Path, typer.Option(help="Project folder, with tapeline.toml and the input folders.")
]
Root = Annotated[Path | None, typer.Option(help="Folder of the books (default: setting 'root').")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Who = Annotated[str | None, typer.Option(help="Who decided (default: current user).")]
NoteOption = Annotated[str, typer.Option(help="Reason to record.")]
AsReported = Annotated[
    str | None,
    typer.Option(help="Show what was published at this time, e.g. '2026-11-13 10:31'."),
]
OutputFormat = Annotated[str, typer.Option("--format", help="Output format: table, csv or json.")]
DEFAULT_TARGET = ""  # no argument: the project's own pipeline
OWN = "pipeline.py"
DEMO = "tapeline.trades"


def target_of(said: str, project: Path) -> str:
    """The pipeline to use: the one given, or else the project's own."""
    if said or is_there(project / OWN):
        return said or OWN
    raise DeclarationError(
        f"{project.absolute()} has no {OWN}. Go to the folder of your project, give it with "
        f"--project, or create one with 'tapeline new NAME'. The demo's books are read with "
        f"{DEMO} as the pipeline."
    )


def load(target: str, project: Path, root: Path | None) -> tuple[Plan, Settings]:
    from tapeline.plan import load_pipeline, resolve

    settings = load_settings(project.absolute())
    if root is not None:
        settings = replace(settings, root=root)
    settings.refuse_far_root()
    return resolve(load_pipeline(target_of(target, project), settings)), settings


def books_of(target: str, project: Path, root: Path | None) -> Books:
    from tapeline.books import Books

    plan, settings = load(target, project, root)
    leave_pandas_aside()
    return Books(plan, settings.home(plan.name))


def print_json(value: Any) -> None:
    out.print_value(plain(value))


def checked_form(form: str, as_json: bool) -> str:
    """The output format; --json is short for --format json."""
    if form not in ("table", "csv", "json"):
        raise typer.BadParameter(f"'{form}' is not one of table, csv, json")
    return "json" if as_json else form


def print_rows(rows: pa.Table, form: str, title: str) -> None:
    """Rows on standard output."""
    if form == "json":
        sys.stdout.write(as_json(rows) + "\n")
    elif form == "csv":
        write_exact(as_csv(rows))
    else:
        out.print(as_table(rows, title))


def progress_of(as_json: bool) -> Progress:
    """A bar for long work, in a terminal."""
    from rich.progress import Progress

    return Progress(console=err, transient=True, disable=as_json or not err.is_terminal)
