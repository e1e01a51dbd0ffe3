"""The command line: parses, calls, prints; decides nothing."""

from __future__ import annotations

import traceback
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from tapeline.cli import (
    broker,
    calendars,
    compare,
    deliveries,
    demo,
    operate,
    plan,
    pull,
    quarantine,
    read,
    run,
    setup,
    sql,
    status,
)
from tapeline.cli.commands import Commands
from tapeline.cli.options import err
from tapeline.errors import OperationError, TapelineError
from tapeline.show import readable
from tapeline.store.files import keep_private
from tapeline.terminal import guard_standard_error, styled

# Commands that write what somebody asked for, where they asked for it: their umask decides.
FOR_PEOPLE = {"new", "export", "views", "service", "calendar", "simulate"}
app = Commands(
    help="Process streams with Spark and keep books of every record.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for part in (setup, plan, run, pull, status, read, sql, compare, operate):
    app.add_typer(part.app)
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(broker.app, name="broker")
app.add_typer(demo.app)
app.add_typer(calendars.app)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tapeline {version('tapeline')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Process streams with Spark and keep books of every record."""
    if context.invoked_subcommand not in FOR_PEOPLE:
        keep_private()


def main() -> None:
    """Run the command line; an error exits with its own code."""
    guard_standard_error()
    try:
        raise SystemExit(app(standalone_mode=False))
    except TapelineError as error:
        _fail(str(error), error.exit_code)
    except TyperException as error:  # printed like every other error
        context = getattr(error, "ctx", None)
        if context is not None and error.format_message():
            err.print(f"{context.get_usage()}\nTry '{context.command_path} --help'.")
        _fail(error.format_message(), error.exit_code)
    except typer.Abort:
        _fail("aborted.", 1)
    except Exception as error:  # noqa: BLE001 - printed like everything else
        if not isinstance(error, OSError) or error.filename is None:
            err.print(traceback.format_exc(), soft_wrap=True, highlight=False)
            raise SystemExit(1) from None
        # A path that the user gave: a traceback would not help.
        named = readable(error.filename)
        words = f"{named}: {error.strerror}. Choose another path, or give this user access to it."
        _fail(words, OperationError.exit_code)


def _fail(words: str, code: int) -> NoReturn:
    if words:
        err.print(styled("error:", "red"), words, soft_wrap=True)
    raise SystemExit(code) from None
