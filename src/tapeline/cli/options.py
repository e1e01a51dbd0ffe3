"""What the commands share: options, consoles, and loading what they name."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import Progress

from tapeline.books import Books
from tapeline.plan import Plan, load_pipeline, resolve
from tapeline.settings import Settings, load_settings
from tapeline.show import as_csv, as_json, as_table, plain

# A pipe has no width: what is piped is not cut.
out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)

Target = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="A pipeline file, or a module that declares one.",
        show_default="pipeline.py in the project, else tapeline.trades",
    ),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--pipeline",
        "-p",
        help="A pipeline file, or a module that declares one.",
        show_default="pipeline.py in the project, else tapeline.trades",
    ),
]
Project = Annotated[
    Path, typer.Option(help="The project's folder: tapeline.toml, landing, reference data.")
]
Root = Annotated[Path | None, typer.Option(help="Where the books are kept.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Who = Annotated[str | None, typer.Option(help="Who decides; the user of this machine if unsaid.")]
Note = Annotated[str, typer.Option(help="Why, for the record.")]
AsReported = Annotated[
    str | None, typer.Option(help="As it was published by then, e.g. '2026-11-13 10:31'.")
]
Form = Annotated[str, typer.Option("--format", help="table, csv or json")]
DEFAULT_TARGET = ""  # nothing said: the project's own pipeline, else the demo's
OWN = "pipeline.py"
DEMO = "tapeline.trades"


def target_of(said: str, project: Path) -> str:
    """The pipeline that is meant: whoever stands in a project need not name its file."""
    return said or (OWN if (project / OWN).is_file() else DEMO)


def load(target: str, project: Path, root: Path | None) -> tuple[Plan, Settings]:
    settings = load_settings(project.absolute())
    if root is not None:
        settings = replace(settings, root=root)
    return resolve(load_pipeline(target_of(target, project), settings)), settings


def books_of(target: str, project: Path, root: Path | None) -> Books:
    plan, settings = load(target, project, root)
    return Books(plan, settings.home(plan.name))


def print_json(value: Any) -> None:
    out.print_json(json.dumps(plain(value)))


def checked_form(form: str, as_json: bool) -> str:
    """The form in which rows are printed; --json is short for one of them."""
    if form not in ("table", "csv", "json"):
        raise typer.BadParameter(f"'{form}' is not one of table, csv, json")
    return "json" if as_json else form


def print_rows(rows: pa.Table, form: str, title: str) -> None:
    """Rows on standard output."""
    if form == "json":
        sys.stdout.write(as_json(rows) + "\n")
    elif form == "csv":
        sys.stdout.write(as_csv(rows))
    else:
        out.print(as_table(rows, title))


def progress_of(as_json: bool) -> Progress:
    """A bar for long work, in a terminal."""
    return Progress(console=err, transient=True, disable=as_json or not err.is_terminal)
