"""Commands for SQL: query the books, and make views for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from tapeline.cli.commands import Commands
from tapeline.cli.option_groups import BooksLocation, grouped
from tapeline.cli.options import (
    DEFAULT_TARGET,
    AsJson,
    AsReported,
    OutputFormat,
    Project,
    Root,
    Target,
    books_of,
    checked_form,
    err,
    load,
    out,
    print_json,
    print_rows,
)
from tapeline.declare.duration import parse_moment
from tapeline.show import readable, write_text
from tapeline.terminal import write_exact
from tapeline.words import counted

app = Commands()


@app.command()
@grouped
def sql(
    place: BooksLocation,
    query: Annotated[
        str | None, typer.Argument(help="A SELECT statement (default: list all tables).")
    ] = None,
    form: OutputFormat = "table",
    limit: Annotated[int, typer.Option(min=1, help="Maximum rows.")] = 10_000,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Maximum seconds that the query may take.")
    ] = 60.0,
    as_reported: AsReported = None,
    as_json: AsJson = False,
) -> None:
    """Query the books with SQL (read-only).

    Use summaries, views, tables and references by their names.
    """
    from tapeline.books.sql import Limits, ask_sql, askable

    form = checked_form(form, as_json)
    books = place.books()
    if query is None:
        known = askable(books)
        if form == "json":
            print_json(known)
            return
        table = RichTable("kind", "name", "columns", title=f"pipeline {books.plan.name}")
        for one in known:
            columns = ", ".join(f"{name} {kind}" for name, kind in one["columns"].items())
            table.add_row(*map(readable, (one["kind"], one["name"], columns)))
        out.print(table)
        return
    moment = parse_moment(as_reported) if as_reported else None
    answer = ask_sql(books, query, moment, Limits(limit, seconds))
    print_rows(answer.rows, form, f"batch {answer.batch}")
    if answer.more:
        err.print(f"Only the first {counted(limit, 'row')} of more. Raise --limit to see them.")


@app.command()
def views(
    engine: Annotated[
        str, typer.Option("--for", help="Engine that reads the views: duckdb or spark.")
    ],
    pipeline: Target = DEFAULT_TARGET,
    write: Annotated[Path | None, typer.Option(help="Write the SQL to this file.")] = None,
    check: Annotated[
        bool,
        typer.Option(help="Check declared views with Spark and leave out those that fail."),
    ] = False,
    project: Project = Path(),
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Print SQL views of the books for other tools, with totals and running totals."""
    from tapeline.books.sql_dialects import Dialect, DuckDBSnapshot, SparkLive
    from tapeline.books.views import as_text, views_of

    if engine not in ("duckdb", "spark"):
        raise typer.BadParameter(f"'{engine}' is not one of duckdb, spark")
    books = books_of(pipeline, project, root)
    dialect: Dialect = SparkLive(books.layout)
    refused: dict[str, str] = {}
    if engine == "duckdb":
        dialect = DuckDBSnapshot(books.cut())
    elif check:
        from tapeline.spark.session import build_session
        from tapeline.spark.view_check import refused_by_spark

        _, settings = load(pipeline, project, root)
        refused = refused_by_spark(build_session(settings, short=True), books)
    statements = views_of(books, dialect, refused)
    text = as_text(books, dialect, statements)
    if write is not None:
        write_text(text, write)
    if as_json:
        print_json({"for": engine, "views": [one.facts() for one in statements]})
    elif write is not None:
        out.print(f"{readable(str(write))}: {counted(len(statements), 'view')}.")
    else:
        write_exact(text)
