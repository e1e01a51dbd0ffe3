"""Commands for people who speak SQL: a query over the books, and views for their own tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table as RichTable

from tapeline.books.dialects import Dialect, DuckDBSnapshot, SparkLive
from tapeline.books.sql import Limits, ask_sql, askable
from tapeline.books.views import as_text, views_of
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    AsReported,
    Form,
    Project,
    Root,
    Target,
    TargetOption,
    books_of,
    checked_form,
    err,
    load,
    out,
    print_json,
    print_rows,
)
from tapeline.declare.duration import parse_moment
from tapeline.show import write_text

app = typer.Typer()


@app.command()
def sql(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT; without it, what can be asked for.")
    ] = None,
    form: Form = "table",
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = Limits.rows,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="At most so many seconds.")
    ] = Limits.seconds,
    as_reported: AsReported = None,
    pipeline: TargetOption = DEFAULT_TARGET,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Ask the books in SQL: summaries, views, tables and references by their names, read-only."""
    form = checked_form(form, as_json)
    books = books_of(pipeline, project, root)
    if query is None:
        known = askable(books)
        if form == "json":
            print_json(known)
            return
        table = RichTable("kind", "name", "columns", title=f"pipeline {books.plan.name}")
        for one in known:
            columns = ", ".join(f"{name} {kind}" for name, kind in one["columns"].items())
            table.add_row(one["kind"], one["name"], escape(columns))
        out.print(table)
        return
    moment = parse_moment(as_reported) if as_reported else None
    answer = ask_sql(books, query, moment, Limits(limit, seconds))
    print_rows(answer.rows, form, f"batch {answer.batch}")
    if answer.more:
        err.print(f"There are more rows than these {limit:,}: ask for less, or raise --limit.")


@app.command()
def views(
    engine: Annotated[str, typer.Option("--for", help="duckdb or spark")],
    pipeline: Target = DEFAULT_TARGET,
    write: Annotated[Path | None, typer.Option(help="Write the SQL to this file.")] = None,
    check: Annotated[
        bool,
        typer.Option(help="Let Spark analyse the declared views; what it refuses is left out."),
    ] = False,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """SQL that makes the books readable for other tools: folded tables with running totals."""
    if engine not in ("duckdb", "spark"):
        raise typer.BadParameter(f"'{engine}' is not one of duckdb, spark")
    books = books_of(pipeline, project, root)
    dialect: Dialect = SparkLive(books.layout)
    refused: dict[str, str] = {}
    if engine == "duckdb":
        dialect = DuckDBSnapshot(books.cut())
    elif check:
        from tapeline.run.session import build_session
        from tapeline.run.viewcheck import refused_by_spark

        _, settings = load(pipeline, project, root)
        refused = refused_by_spark(build_session(settings), books)
    statements = views_of(books, dialect, refused)
    text = as_text(books, dialect, statements)
    if write is not None:
        write_text(text, write)
    if as_json:
        print_json({"for": engine, "views": [one.facts() for one in statements]})
    elif write is not None:
        out.print(f"{escape(str(write))}: {len(statements)} views.")
    else:
        sys.stdout.write(text)
