"""The command that lets a settlement calendar reach further."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tapeline.cli.options import AsJson, out, print_json

app = typer.Typer()


@app.command()
def calendar(
    market: Annotated[str, typer.Argument(help="The market: US, IN, EU, GB or CH.")],
    days: Annotated[Path, typer.Argument(help="A CSV file with the columns day and what.")],
    since: Annotated[
        str | None, typer.Option(help="Make the days from here on anew; else those that lack.")
    ] = None,
    reference: Annotated[Path, typer.Option(help="Where settlement_calendar.csv is.")] = Path(
        "reference"
    ),
    as_json: AsJson = False,
) -> None:
    """Let a settlement calendar of the trades reach further, by days of your own."""
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
    out.print(f"{escape(str(path))}: {', '.join(done.venues)} from {done.first} to {done.last}, "
              f"{done.rows:,} rows.")  # fmt: skip
    out.print("A run takes it with its next batch. Send again what waited for it:")
    out.print("tapeline quarantine redrive --reason 'the calendar has a settlement'")
