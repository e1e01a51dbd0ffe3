"""Commands about a pipeline's code: what it says, what a change of it does, and applying it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.option_groups import BooksLocation, grouped
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    NoteOption,
    Project,
    Root,
    Target,
    Who,
    err,
    load,
    out,
    print_json,
    progress_of,
)
from tapeline.cli.pandas_aside import leave_pandas_aside
from tapeline.show import readable
from tapeline.terminal import styled
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.books.layout import Layout
    from tapeline.plan import Plan
    from tapeline.plan.changes import StepChange
    from tapeline.settings import Settings

app = Commands()
Step = tuple[str, str, str, str]
CERTAIN = ("added", "retired", "changed", "rebuilt")


@app.command()
def plan(
    pipeline: Target = DEFAULT_TARGET,
    check: Annotated[bool, typer.Option(help="Also analyse every step with Spark.")] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show which published numbers a change would move.")
    ] = False,
    days: Annotated[
        int | None, typer.Option(help="Preview only windows of the last days (default: all).")
    ] = None,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Check a pipeline, show its steps, and compare them with the books. Reads no records."""
    from tapeline.books.layout import Layout
    from tapeline.plan.graph import makes_key
    from tapeline.spark.conf import refuse_conf

    found, settings = load(pipeline, project, root)
    refuse_conf(settings)
    if preview:
        from tapeline.cli.preview import print_preview

        print_preview(found, settings, days, as_json)
        return
    if check:
        changes = _checked(found, settings)
    else:
        changes = _noticed(found, settings)
    steps = _steps(found)
    if as_json:
        print_json(_facts(steps, changes))
        return
    table = RichTable("kind", "name", "reads", "declared at", title=f"pipeline {found.name}")
    for row in steps:
        table.add_row(*map(readable, row))
    out.print(table)
    for step in found.tables if not check else ():
        unknown = step.stream in found.pipeline.sources and not (
            found.pipeline.sources[step.stream].connector.fields
        )
        if makes_key(found.pipeline, step) and not unknown:
            keys = readable(", ".join(step.key))
            out.print(f"Step {step.name} computes its key ({keys}). Use --check to verify it.")
    agreed = " Spark accepts every step." if check else ""
    out.print(styled(f"Pipeline is valid.{agreed}", "green"))
    if changes is not None:
        print_changes(changes)
        if changes and all(one.change in CERTAIN for one in changes):
            out.print("Apply it with 'tapeline apply'.")
        elif changes:
            out.print("Use --check to be certain, then 'tapeline apply'.")
        _print_build(Layout(settings.home(found.name)))


def _print_build(layout: Layout) -> None:
    """Name a change that was begun and not finished."""
    from tapeline.books.builds import unfinished

    going = unfinished(layout)
    if going is not None:
        begun = f"{going.who}, {going.at}"
        out.print(readable(f"Generation {going.generation} is not published yet ({begun})."))
        out.print("'tapeline apply' continues it, 'tapeline apply --abandon' removes it.")


def _noticed(found: Plan, settings: Settings) -> list[StepChange] | None:
    """What was edited since the books were made; None without books."""
    from tapeline.books.layout import Layout
    from tapeline.store.files import is_there

    layout = Layout(settings.home(found.name))
    if not is_there(layout.commits):
        return None  # and nothing that reads books is imported
    from tapeline.books.estimates import noticed_changes

    leave_pandas_aside()
    return noticed_changes(found, layout)


def _checked(found: Plan, settings: Settings) -> list[StepChange] | None:
    """Let Spark analyse every step; how they differ from those of the books, for certain."""
    from tapeline.spark.jvm import prepare_jvm

    prepare_jvm(settings, short=True)  # Java starts while Python imports the rest
    from tapeline.books.builds import last_decision
    from tapeline.books.estimates import estimated
    from tapeline.flow.change import Change
    from tapeline.operate.apply import now
    from tapeline.plan.views import refuse_wrong_views
    from tapeline.spark.compile import compiler
    from tapeline.spark.queries import needs_of
    from tapeline.spark.session import build_session

    session = build_session(settings, connectors=needs_of(found))
    with Change(compiler(session, found, settings), found, settings, now) as change:
        steps = change.steps_at({})
        steps.refuse_cuts()
        facts = {n: rows.schema for n, rows in change.references.items()}
        refuse_wrong_views(found.pipeline, {**facts, **steps.shapes})
        if last_decision(change.layout) is None:
            return None
        return estimated(change.layout, found, change.changes)


def _steps(found: Plan) -> list[Step]:
    """Everything declared: kind, name, what it reads, and where."""
    from tapeline.plan.views import view_inputs

    pipeline = found.pipeline
    sources = (("source", pipeline.sources), ("reference", pipeline.references))
    steps = [
        (kind, item.name, item.connector.path, str(item.where))
        for kind, items in sources
        for item in items.values()
    ]
    steps += [
        ("pull", one.name, f"{one.system.asks}, into {one.into}", str(one.where))
        for one in pipeline.pulls.values()
    ]
    for step in (*found.tables, *found.summaries):
        kind = "table" if step in found.tables else "summary"
        steps.append((kind, step.name, ", ".join(i.name for i in step.inputs), str(step.where)))
    steps += [
        ("view", view.name, ", ".join(view_inputs(pipeline, view)), str(view.where))
        for view in found.views
    ]
    steps += [
        ("alert", alert.name, alert.reads, str(alert.where)) for alert in pipeline.alerts.values()
    ]
    steps += [
        ("sink", sink.name, f"{sink.reads}, to {sink.connector.goes_to}", str(sink.where))
        for sink in pipeline.sinks.values()
    ]
    return steps


def _facts(steps: list[Step], changes: Sequence[StepChange] | None) -> list[dict[str, Any]]:
    """Every step, and with books what a change of it does to them; retired steps come last."""
    names = ("kind", "name", "reads", "where")
    found: list[dict[str, Any]] = [dict(zip(names, step, strict=True)) for step in steps]
    if changes is None:
        return found
    known = {one.name: one.facts() for one in changes}
    for row in found:
        if row["kind"] in ("table", "summary"):
            row.update(known.pop(row["name"], {"change": "none"}))
    return found + [{**one, "reads": "", "where": ""} for one in known.values()]


def print_changes(changes: Sequence[StepChange]) -> None:
    """What is different between the file and the books, for people."""
    if not changes:
        out.print("The books were made with this code.")
        return
    table = RichTable("step", "change", "what", "built from", "records", title="file and books")
    for one in changes:
        what = "\n".join(map(readable, one.why))
        origin = one.built_from if one.records else ""
        records = f"{one.records:,}" if one.records else ""
        table.add_row(readable(one.name), one.change, what, readable(origin), records)
    out.print(table)
    seconds, size = sum(one.seconds for one in changes), sum(one.bytes for one in changes)
    if seconds or size:
        out.print(f"To build: about {_time(seconds)} and {size / 1_000_000:,.1f} MB.")


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} seconds" if seconds < 120 else f"{seconds / 60:,.0f} minutes"


@app.command()
@grouped
def apply(
    place: BooksLocation,
    yes: Annotated[bool, typer.Option("--yes", help="Apply without asking.")] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Remove what an unfinished change has built.")
    ] = False,
    who: Who = None,
    note: NoteOption = "",
    as_json: AsJson = False,
) -> None:
    """Change the books to the code in the file: build what is new, then switch.

    A running pipeline continues while tables are built. It is stopped for the switch.
    """
    found, settings = place.load()
    if abandon:
        _abandoned(found, settings, as_json)
        return
    done = applied(found, settings, (who, note), (yes or as_json, False), as_json)
    if as_json:
        print_json(done.facts())


def applied(
    found: Plan,
    settings: Settings,
    signed: tuple[str | None, str],
    how: tuple[bool, bool],
    quiet: bool,
) -> Any:
    """Apply what a file changes, and say so. `how`: without asking, and only back."""
    from tapeline.books.quarantine import user
    from tapeline.flow.change import Signed
    from tapeline.operate.apply import NOTHING, Watcher, apply_change

    if not quiet:
        err.print("Starting Spark for", styled(found.name, "bold"), "...")

    def agree(changes: Sequence[StepChange]) -> None:
        if not quiet:
            print_changes(changes)
        if not how[0]:
            typer.confirm("Apply this change?", abort=True)

    with progress_of(quiet) as bar:
        task = bar.add_task("building", total=None, visible=False)
        watcher = Watcher(
            agree,
            lambda p: bar.update(task, completed=p.batch, total=p.of, visible=True),
            lambda words: None if quiet else err.print(words),
        )
        who, note = signed
        signature = Signed(who or user(), note)
        done = apply_change(found, settings, signature, watcher, back=how[1])
    if quiet:
        return done
    if done.generation is None:
        out.print(NOTHING)
        return done
    again = " Start the pipeline again with 'tapeline run'." if done.stopped else ""
    out.print(
        styled(f"Published generation {done.generation} with batch {done.batch}.", "green")
        + f"{again} 'tapeline changes' shows the numbers that moved."
    )
    return done


def _abandoned(found: Plan, settings: Settings, as_json: bool) -> None:
    from tapeline.books.layout import Layout
    from tapeline.operate.apply import abandon_build

    gone = abandon_build(Layout(settings.home(found.name)))
    if as_json:
        print_json({"abandoned": gone.generation if gone else None})
    elif gone is None:
        out.print("No change is being built.")
    else:
        names = counted(len(gone.built), "step")
        out.print(f"Removed generation {gone.generation} ({readable(names)}). The books are as "
                  "they were.")  # fmt: skip


@app.command()
@grouped
def rollback(
    place: BooksLocation,
    yes: Annotated[bool, typer.Option("--yes", help="Roll back without asking.")] = False,
    who: Who = None,
    note: NoteOption = "",
    as_json: AsJson = False,
) -> None:
    """Publish an earlier generation again. Put its code back into the file first."""
    found, settings = place.load()
    done = applied(found, settings, (who, note), (yes or as_json, True), as_json)
    if as_json:
        print_json(done.facts())


@app.command()
@grouped
def generations(place: BooksLocation, as_json: AsJson = False) -> None:
    """List the generations of the books: what each changed, since when, and its size."""
    from tapeline.books.generation_list import listed_generations

    rows = listed_generations(place.books().layout)
    if as_json:
        print_json(rows)
        return
    table = RichTable("generation", "state", "from batch", "since", "by", "steps", "MB")
    for row in rows:
        steps = "\n".join(readable(f"{name}: {what}") for name, what in row["steps"].items())
        since = f"{row['at']:%Y-%m-%d %H:%M}" if row["at"] else ""
        size = f"{row['bytes'] / 1_000_000:,.1f}"
        named = (row["generation"], row["state"], row["batch"] or "", since, row["who"])
        table.add_row(*(readable(str(cell)) for cell in named), steps, size)
    out.print(table)
