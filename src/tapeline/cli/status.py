"""The command that shows the status of a pipeline."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    Project,
    Root,
    Target,
    books_of,
    out,
    print_json,
)
from tapeline.show import plain, readable
from tapeline.terminal import as_words, styled
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.books.alerts import EngineAlert
    from tapeline.books.commit import Counts
    from tapeline.books.pulls import PullsStatus
    from tapeline.books.status import Lag, Status

app = Commands()


@app.command()
def status(
    pipeline: Target = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Show position, lag, rate and batch times of a pipeline."""
    from tapeline.books.alerts import words_of_tick
    from tapeline.books.pulls import read_pulls
    from tapeline.books.reference_ages import read_ages
    from tapeline.books.sizes import sizes_of
    from tapeline.books.status import Status, read_status
    from tapeline.intake.alerts import engine_alerts
    from tapeline.intake.deliveries import Deliveries
    from tapeline.operate.control import paused

    books = books_of(pipeline, project, root)
    cut = books.cut()
    found = read_status(books.layout.status) or Status(running=False, batch=cut.batch)
    pause = paused(books.layout)  # known at once, before the flow takes notice
    more: dict[str, Any] = {
        "paused": pause.as_dict() if pause else None,
        "bytes": sizes_of(books.layout, datetime.now(UTC)),
    }
    pulling = read_pulls(books.layout)
    totals = cut.commit.totals
    ages, now = read_ages(books.layout), datetime.now(UTC)
    known = Deliveries(books, project.absolute())
    rejected = known.undecided()
    active = [one for one in engine_alerts(known, now) if one.closed_at is None]
    if as_json:
        more["rejected"] = [plain(one.facts()) for one in rejected]
        more["alerts"] = [one.model_dump() for one in active]
        pulls: dict[str, Any] = {"pulling": pulling.as_dict()} if pulling.pulls else {}
        if ages:
            pulls["references"] = [one.as_dict() for one in ages]
        of_tables = {name: counts.as_dict() for name, counts in totals.items()}
        print_json({**found.as_dict(), **more, **pulls, "totals": of_tables})
        return
    _print_table(books.plan.name, found, more)
    if found.tick:
        out.print(f"A tick uses {words_of_tick(found.tick, now)}.", highlight=False)
    _print_alerts(active, len(rejected))
    _print_parts(found, pulling)
    for age in ages:
        words = f"reference {age.reference}: {age.words(now)}"
        out.print(readable(words), highlight=False, soft_wrap=True)
    _print_totals(totals)


def _print_table(name: str, found: Status, more: dict[str, Any]) -> None:
    from tapeline.books.stuck import words_of_stuck

    table = RichTable("what", "value", title=f"pipeline {name}", show_header=False)
    for key, value in {**_in_table(found), **more}.items():
        if value not in (None, {}, []):
            words = str(value) if key == "pid" else as_words(value)
            table.add_row(key.replace("_", " "), words)
    out.print(table)
    if found.stuck:
        words = readable(f"The flow {words_of_stuck(found.stuck)}")
        out.print(styled(words, "red"), soft_wrap=True)


def _print_totals(totals: dict[str, Counts]) -> None:
    for name, counts in totals.items():
        if counts.verdicts:
            words = ", ".join(f"{k} {v:,}" for k, v in sorted(counts.verdicts.items()))
            out.print(f"{name}: {words}")


def _print_alerts(active: list[EngineAlert], rejected: int) -> None:
    for one in active:
        words = f"{one.about} (since {one.raised_at})"
        out.print(styled("alert:", "red"), readable(words), soft_wrap=True)
    if rejected:
        out.print(f"{counted(rejected, 'rejected file')}: see 'tapeline deliveries'.")


def _print_parts(status: Status, pulling: PullsStatus) -> None:
    """One line for each partition and each pull."""
    from tapeline.books.pulls import words_of

    for name, source in status.sources.items():
        for partition, lag in source.partitions.items():
            out.print(f"{readable(name)} {readable(partition)}: {_lag_words(lag)}", highlight=False)
    for pull in pulling.pulls:
        words = words_of(pull, pulling.running)
        out.print(readable(f"pull {pull.pull}: {words}"), highlight=False, soft_wrap=True)


def _in_table(status: Status) -> dict[str, Any]:
    """What is shown in the table of a status; the rest has lines of its own."""
    apart: Any = {
        "pipeline": True,
        "stuck": True,
        "tick": True,
        "sources": {"__all__": {"partitions"}},
    }
    return status.model_dump(exclude_unset=True, exclude=apart)


def _lag_words(lag: Lag) -> str:
    if not lag.lag_records:
        return "no lag"
    soon = lag.catch_up_seconds
    when = f"caught up in about {soon:,.0f} s" if soon is not None else "not catching up"
    return f"lag {counted(lag.lag_records, 'message')}, oldest {lag.lag_seconds:,.1f} s; {when}"
