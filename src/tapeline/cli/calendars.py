"""The command that extends a settlement calendar."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from tapeline.cli.commands import Commands
from tapeline.cli.options import AsJson, out, print_json
from tapeline.extras import require
from tapeline.show import readable
from tapeline.words import counted

app = Commands()


@app.command()
def calendar(
    market: Annotated[str, typer.Argument(help="Market: US, IN, EU, GB or CH.")],
    days: Annotated[Path, typer.Argument(help="CSV file with the columns day and what.")],
    since: Annotated[
        str | None,
        typer.Option(help="Rebuild days from this date (default: only missing days)."),
    ] = None,
    reference: Annotated[Path, typer.Option(help="Folder of settlement_calendar.csv.")] = Path(
        "reference"
    ),
    as_json: AsJson = False,
) -> None:
    """Extend a settlement calendar with your own days."""
    require("trades", "tapeline calendar")
    from tapeline.trades.markets import named
    from tapeline.trades.own_days import extend_calendar, read_own_days

    try:
        first = date.fromisoformat(since) if since else None
    except ValueError:
        raise typer.BadParameter(f"'{since}' is not a date such as 2026-12-31") from None
    path = reference / "settlement_calendar.csv"
    done = extend_calendar(path, named(market)[0], read_own_days(days), first)
    if as_json:
        print_json({"file": str(path), **asdict(done)})
        return
    out.print(f"{readable(str(path))}: {', '.join(done.venues)} from {done.first} to {done.last}, "
              f"{counted(done.rows, 'row')}.")  # fmt: skip
    out.print("A running pipeline uses it from its next batch. Send waiting records again with:")
    out.print("tapeline quarantine redrive --reason 'the calendar has a settlement'")
