"""The command line: parses, calls, prints; decides nothing."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer
from rich.markup import escape

from tapeline.cli import (
    broker,
    calendars,
    keeping,
    pulling,
    quarantine,
    reading,
    running,
    sql,
    trying,
)
from tapeline.cli.options import err
from tapeline.errors import OperationError, TapelineError

app = typer.Typer(
    help="Tapeline keeps the books of a stream.", no_args_is_help=True, add_completion=False
)
for part in (running.app, pulling.app, reading.app, sql.app, keeping.app):
    app.add_typer(part)
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(broker.app, name="broker")
app.add_typer(trying.app)
app.add_typer(calendars.app)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tapeline {version('tapeline')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Tapeline keeps the books of a stream."""


def main() -> None:
    """Run the command line; errors end it with their own exit code."""
    try:
        app(standalone_mode=True)
    except TapelineError as error:
        err.print("[red]error:[/red]", escape(str(error)), soft_wrap=True)
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        if error.filename is None:
            raise
        # A path that somebody named: no news for Tapeline's developers.
        words = f"{error.filename}: {error.strerror}. Name another path, or let this user use it."
        err.print("[red]error:[/red]", escape(words), soft_wrap=True)
        raise SystemExit(OperationError.exit_code) from None
