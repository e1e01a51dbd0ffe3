"""Views: what they read, whether their SQL is right, and which of them can leave the books."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tapeline.declare import Alert, Pipeline, Sink, View
from tapeline.errors import DeclarationError, did_you_mean
from tapeline.sql.duckdb import (
    WrongSelectError,
    WrongSqlError,
    columns_of,
    names_read,
    unsteady_calls,
)

if TYPE_CHECKING:
    import pyarrow as pa

NOT_PARSED = (
    "cannot be parsed. Write names that are also words of SQL in double quotes, for example "
    '"order".\n{}'
)


def check_view(pipeline: Pipeline, view: View) -> None:
    """A view is one SELECT over summaries, tables, references and views before it."""
    if ";" in view.sql:
        raise DeclarationError(f"{view.where}: view '{view.name}' must be one SELECT, without ';'.")
    try:
        names = names_read(view.sql)
    except WrongSqlError as error:
        words = "must be one SELECT." if not error.select else NOT_PARSED.format(error)
        raise DeclarationError(f"{view.where}: view '{view.name}' {words}") from None
    readable = _readable(pipeline)
    before = list(pipeline.views)[: list(pipeline.views).index(view.name)]
    for name in names:
        if name not in readable:
            hint = did_you_mean(name, readable)
            raise DeclarationError(
                f"{view.where}: view '{view.name}' reads '{name}', which is not a summary, table "
                f"or reference.{hint}"
            )
        if name in pipeline.views and name not in before:
            raise DeclarationError(
                f"{view.where}: view '{view.name}' reads the view '{name}', which is declared "
                f"after it or not at all. Declare '{name}' first."
            )


def view_inputs(pipeline: Pipeline, view: View) -> list[str]:
    """The summaries, tables, references and views that a view reads."""
    return [name for name in names_read(view.sql) if name in _readable(pipeline)]


def stored_inputs(pipeline: Pipeline, view: View) -> set[str]:
    """The summaries, tables and references that a view reads, also through other views."""
    found: set[str] = set()
    for name in view_inputs(pipeline, view):
        deeper = pipeline.views.get(name)
        found |= stored_inputs(pipeline, deeper) if deeper else {name}
    return found


def _readable(pipeline: Pipeline) -> Mapping[str, Any]:
    return {**pipeline.summaries, **pipeline.tables, **pipeline.references, **pipeline.views}


def refuse_wrong_views(pipeline: Pipeline, inputs: Mapping[str, pa.Schema]) -> None:
    """Refuse views that do not suit the columns of what they read, or who reads them."""
    if not pipeline.views:
        return
    selects = {view.name: view.sql for view in pipeline.views.values()}
    try:
        columns = columns_of(selects, inputs)
    except WrongSelectError as error:
        view = pipeline.views[error.name]
        raise DeclarationError(f"{view.where}: view '{view.name}' does not work. {error}") from None
    readers: list[Alert | Sink] = [*pipeline.sinks.values(), *pipeline.alerts.values()]
    for name in (reader.reads for reader in readers if reader.reads in columns):
        key_of_view(pipeline, pipeline.views[name], columns[name])


def check_delivered(pipeline: Pipeline, reader: Alert | Sink) -> None:
    """A view that leaves the books must be comparable: keyed, and the same whenever it is read."""
    view = pipeline.views.get(reader.reads)
    if view is None:
        return
    if not stored_inputs(pipeline, view) & pipeline.summaries.keys():
        raise DeclarationError(
            f"{reader.where}: {reader.name}() reads the view '{view.name}', which reads no "
            "summary. Sinks and alerts compare a view by the key of a summary that it reads: read "
            "a table or a summary instead."
        )
    for one in (view, *(pipeline.views[name] for name in _views_below(pipeline, view))):
        for call in unsteady_calls(one.sql):
            raise DeclarationError(
                f"{one.where}: view '{one.name}' uses {call}, and {reader.name}() sends its "
                "changes. The same batch must give the same rows whenever it is read: use a time "
                "or value from the records instead."
            )


def _views_below(pipeline: Pipeline, view: View) -> Iterable[str]:
    for name in view_inputs(pipeline, view):
        if name in pipeline.views:
            yield name
            yield from _views_below(pipeline, pipeline.views[name])


def key_of_view(pipeline: Pipeline, view: View, columns: Sequence[str]) -> tuple[str, ...]:
    """The key by which a view's rows are compared: the longest summary's key among its columns."""
    there = set(columns)
    read = sorted(stored_inputs(pipeline, view) & pipeline.summaries.keys())
    keys = [pipeline.summaries[name].key for name in read]
    fitting = [key for key in keys if key and there >= set(key)]
    if fitting:
        return max(fitting, key=len)
    named = zip(read, keys, strict=True)
    wanted = " or ".join(f"{', '.join(key)} (of {name})" for name, key in named)
    raise DeclarationError(
        f"{view.where}: view '{view.name}' has the columns {', '.join(columns)}. A sink or alert "
        f"reads it, so it needs all key columns of a summary: {wanted}. Select them under their "
        "own names."
    )
