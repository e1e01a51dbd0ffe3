"""The graph of a pipeline: what reads what, in which order, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tapeline.declare import Alert, Pipeline, Pull, Sink, Step, Summary, Table, View
from tapeline.errors import DeclarationError, did_you_mean


@dataclass(frozen=True)
class Plan:
    """A pipeline whose names are resolved; tables come in the order they can be computed."""

    pipeline: Pipeline
    tables: tuple[Table, ...]
    summaries: tuple[Summary, ...]
    views: tuple[View, ...]

    @property
    def name(self) -> str:
        return self.pipeline.name

    def entry_of(self, table: str) -> Table:
        """The table through which a table's records entered: the one that reads their source."""
        found = self.pipeline.tables[table]
        while found.stream in self.pipeline.tables:
            found = self.pipeline.tables[found.stream]
        return found


def resolve(pipeline: Pipeline) -> Plan:
    """Check everything that can be known without Spark."""
    for step in (*pipeline.tables.values(), *pipeline.summaries.values()):
        _check_inputs(pipeline, step)
    for summary in pipeline.summaries.values():
        _check_summary(summary)
    for table in pipeline.tables.values():
        _check_table(pipeline, table)
    for view in pipeline.views.values():
        _check_view(pipeline, view)
    if not pipeline.sources:
        raise DeclarationError(
            f"pipeline '{pipeline.name}' has no source. Add pipeline.source(name, Files(...))."
        )
    for source in pipeline.sources.values():
        try:
            _ = source.connector.fields
        except DeclarationError as error:
            raise DeclarationError(f"{source.where}: {error}") from None
    for pull in pipeline.pulls.values():
        _check_pull(pipeline, pull)
    for alert in pipeline.alerts.values():
        _check_alert(pipeline, alert)
    for sink in pipeline.sinks.values():
        _check_sink(pipeline, sink)
    return Plan(
        pipeline,
        tuple(_ordered(pipeline)),
        tuple(pipeline.summaries.values()),
        tuple(pipeline.views.values()),
    )


def _check_inputs(pipeline: Pipeline, step: Step) -> None:
    for given in step.inputs:
        if given.name not in pipeline.declared:
            hint = did_you_mean(given.name, pipeline.declared)
            raise DeclarationError(
                f"{step.where}: {step.name}() reads '{given.name}', which no step makes.{hint}"
            )
        streams = given.name in pipeline.sources or given.name in pipeline.tables
        if given.kind == "stream" and not streams:
            raise DeclarationError(
                f"{step.where}: {step.name}() reads '{given.name}' as a Stream, but only sources "
                f"and tables stream. Annotate it as Snapshot."
            )
        if given.kind == "snapshot" and given.name not in pipeline.references:
            raise DeclarationError(
                f"{step.where}: {step.name}() reads '{given.name}' as a Snapshot, but only "
                "references are read whole. Annotate it as Stream."
            )
    count = sum(given.kind == "stream" for given in step.inputs)
    if count != 1:
        raise DeclarationError(
            f"{step.where}: {step.name}() reads {count} Streams; a step reads exactly one, and "
            "references as Snapshots."
        )


def _check_pull(pipeline: Pipeline, pull: Pull) -> None:
    if not hasattr(pull.system, "reader"):
        raise DeclarationError(
            f"{pull.where}: pull '{pull.name}' asks {type(pull.system).__name__}, which cannot be "
            "asked. Give HttpPull(...) or PostgresPull(...)."
        )
    source = pipeline.sources.get(pull.into)
    if source is None:
        raise DeclarationError(
            f"{pull.where}: pull '{pull.name}' goes into '{pull.into}', which is no source."
            f"{did_you_mean(pull.into, pipeline.sources)}"
        )
    takes = getattr(source.connector, "format", None) in ("json", "text")
    if not takes or not hasattr(source.connector, "snapshot"):
        raise DeclarationError(
            f"{pull.where}: pull '{pull.name}' brings JSON lines, but '{pull.into}' does not take "
            "them. Declare that source as Files(..., format='json')."
        )


def _check_alert(pipeline: Pipeline, alert: Alert) -> None:
    known = {**pipeline.tables, **pipeline.summaries}
    if alert.reads not in known:
        raise DeclarationError(
            f"{alert.where}: {alert.name}() looks at '{alert.reads}', which is neither a table nor "
            f"a summary.{did_you_mean(alert.reads, known)}"
        )


def _check_sink(pipeline: Pipeline, sink: Sink) -> None:
    readable: dict[str, tuple[Mapping[str, Any], str]] = {
        "rows": (pipeline.tables, "Rows, of a table"),
        "changes": (pipeline.summaries, "Changes, of a summary"),
        "alerts": (pipeline.alerts, "Alerts, of an alert"),
    }
    known, what = readable[sink.kind]
    if sink.reads not in known:
        raise DeclarationError(
            f"{sink.where}: {sink.name}() reads '{sink.reads}' as {what}, but there is none of "
            f"that name.{did_you_mean(sink.reads, known)}"
        )
    try:
        _ = sink.connector.goes_to
    except AttributeError:
        raise DeclarationError(
            f"{sink.where}: {sink.name}() goes to {type(sink.connector).__name__}, where nothing "
            "can go. Give Kafka(...), Files(...), Console(), Memory() or Foreach(...)."
        ) from None
    except DeclarationError as error:
        raise DeclarationError(f"{sink.where}: {error}") from None
    for source in pipeline.sources.values():
        if _reads_back(source.connector, sink.connector):
            raise DeclarationError(
                f"{sink.where}: {sink.name}() goes where the source '{source.name}' takes from: "
                "what leaves would come in again, for ever. Send it elsewhere."
            )


def _reads_back(source: Any, sink: Any) -> bool:
    """Whether a source would take what a sink sends."""
    topics = getattr(sink, "names", ())
    if topics and hasattr(source, "names"):
        named = {name.partition("/")[0] for name in source.names}
        return topics[0] in named or bool(source.chooses(topics[0], 0))
    return bool(getattr(sink, "path", None) == source.path)


def _check_table(pipeline: Pipeline, table: Table) -> None:
    if table.sequence_by is not None and not table.key:
        raise DeclarationError(
            f"{table.where}: {table.name}() has sequence_by without a key: say by 'key' which "
            "records replace each other."
        )
    if table.apply_as_deletes is not None and table.sequence_by is None:
        raise DeclarationError(
            f"{table.where}: {table.name}() has apply_as_deletes without sequence_by: a deletion "
            "that comes first must still win over what it deletes."
        )
    source = pipeline.sources.get(table.stream)
    if source is None:
        if table.key:
            raise DeclarationError(
                f"{table.where}: {table.name}() has a key but reads the table '{table.stream}'. "
                "Identity is decided where records enter: put the key on the table that reads "
                "the source."
            )
        return
    names = [field.name for field in source.connector.fields]
    for column in table.key:
        if column not in names:
            raise DeclarationError(
                f"{table.where}: {table.name}() has the key '{column}', which '{source.name}' "
                f"does not have.{did_you_mean(column, names)}"
            )


def _check_summary(summary: Summary) -> None:
    if summary.snapshots:
        raise DeclarationError(
            f"{summary.where}: {summary.name}() reads the reference '{summary.snapshots[0]}'. A "
            "summary reads one table's Stream: join the reference in a table before it, where the "
            "joined row is kept."
        )
    if len(set(summary.key)) != len(summary.key):
        raise DeclarationError(f"{summary.where}: {summary.name}() names a key column twice.")
    if summary.time is not None and summary.time not in summary.key:
        raise DeclarationError(
            f"{summary.where}: {summary.name}() has the time '{summary.time}', which is not in "
            f"its key.{did_you_mean(summary.time, summary.key)}"
        )
    if (summary.time is None) != (summary.width is None):
        raise DeclarationError(
            f"{summary.where}: {summary.name}() needs both time and width, or neither: together "
            "they say when a window ends."
        )


def _check_view(pipeline: Pipeline, view: View) -> None:
    """A view is one SELECT over summaries and references."""
    if not re.match(r"\s*(select|with)\b", view.sql, re.IGNORECASE) or ";" in view.sql:
        raise DeclarationError(f"{view.where}: view '{view.name}' must be one SELECT, without ';'.")
    readable = {**pipeline.summaries, **pipeline.references, **pipeline.views}
    before = list(pipeline.views)[: list(pipeline.views).index(view.name)]
    for name in _names_read(view):
        if name not in readable:
            hint = did_you_mean(name, readable)
            raise DeclarationError(
                f"{view.where}: view '{view.name}' reads '{name}', which is no summary and no "
                f"reference.{hint}"
            )
        if name in pipeline.views and name not in before:
            raise DeclarationError(
                f"{view.where}: view '{view.name}' reads the view '{name}', which is not declared "
                "before it."
            )


def view_inputs(pipeline: Pipeline, view: View) -> list[str]:
    """The summaries, references and views that a view reads."""
    readable = {**pipeline.summaries, **pipeline.references, **pipeline.views}
    return [name for name in _names_read(view) if name in readable]


def _names_read(view: View) -> list[str]:
    """What stands behind FROM and JOIN, but for the view's own WITH names."""
    own = set(re.findall(r"(\w+)\s+as\s*\(", view.sql, re.IGNORECASE))
    found = re.findall(r"\b(?:from|join)\s+([a-z_]\w*)", view.sql, re.IGNORECASE)
    return sorted(set(found) - own)


def _ordered(pipeline: Pipeline) -> list[Table]:
    """Tables after the tables they read."""
    done: list[Table] = []
    waiting = dict(pipeline.tables)
    while waiting:
        ready = [t for t in waiting.values() if t.stream not in waiting]
        if not ready:
            names = " -> ".join(waiting)
            first = next(iter(waiting.values()))
            raise DeclarationError(f"{first.where}: these tables read each other: {names}.")
        for table in ready:
            done.append(table)
            del waiting[table.name]
    return done
