"""A preview of a change: which published numbers it moves, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table as RichTable

from tapeline.cli.options import err, out, print_json, progress_of
from tapeline.show import plain, readable
from tapeline.terminal import styled
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.plan import Plan
    from tapeline.settings import Settings


def print_preview(found: Plan, settings: Settings, days: int | None, as_json: bool) -> None:
    """Build the change beside the books, and show what it moves."""
    from tapeline.cli.plan import print_changes
    from tapeline.operate.apply import NOTHING, Watcher, preview_change

    if not as_json:
        err.print("Starting Spark for", styled(found.name, "bold"), "...")
    with progress_of(as_json) as bar:
        task = bar.add_task("building", total=None, visible=False)
        watcher = Watcher(
            lambda changes: None if as_json else print_changes(changes),
            lambda p: bar.update(task, completed=p.batch, total=p.of, visible=True),
        )
        made = preview_change(found, settings, watcher, days)
    if as_json:
        print_json(made.facts() if made else {"summaries": [], "tables": []})
    elif made is None:
        out.print(NOTHING)
    else:
        _print(made.facts())


def _print(facts: Mapping[str, Any]) -> None:
    for row in facts["tables"]:
        for one in row["verdicts"]:
            records = counted(one["records"], "record")
            what = f"{row['table']}: {records} {one['from']} -> {one['to']}"
            examples = f"for example {', '.join(one['examples'])}"
            out.print(readable(f"{what}, {examples}"), highlight=False)
    for row in facts["summaries"]:
        out.print(f"{row['summary']}: {counted(row['moved'], 'number')} would move")
        if row["moved"]:
            out.print(_totals(row))
            out.print(_largest(row))
    out.print("Nothing has changed yet. 'tapeline apply' publishes this; 'tapeline apply "
              "--abandon' removes what was built.")  # fmt: skip


def _totals(row: Mapping[str, Any]) -> RichTable:
    table = RichTable("measure", "published", "with the change", title=f"{row['summary']}: totals")
    for measure, sides in row["totals"].items():
        table.add_row(readable(measure), *(readable(sides[s] or "-") for s in ("before", "after")))
    return table


def _largest(row: Mapping[str, Any]) -> RichTable:
    table = RichTable(
        "key", "measure", "published", "with the change", title=f"{row['summary']}: largest moves"
    )
    for move in row["largest"]:
        key = " / ".join(str(plain(part)) for part in move["key"].values())
        for measure, value in (move["new"] or {}).items():
            old = (move["old"] or {}).get(measure)
            if old != value:
                cells = (key, measure, "-" if old is None else plain(old), plain(value))
                table.add_row(*(readable(str(cell)) for cell in cells))
    return table
