"""The graph of a pipeline: what reads what, in which order, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tapeline.declare import (
    Alert,
    DeclaredSource,
    Pipeline,
    Pull,
    Reference,
    Sink,
    Summary,
    Table,
    View,
)
from tapeline.errors import DeclarationError, did_you_mean
from tapeline.plan.inputs import check_inputs, know_references
from tapeline.plan.views import check_delivered, check_view
from tapeline.plan.visible import refuse_visible
from tapeline.settings import FAR

DESTINATION = ("open", "position", "send", "close")  # what a sink calls


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
    know_references(pipeline)
    for step in (*pipeline.tables.values(), *pipeline.summaries.values()):
        check_inputs(pipeline, step)
        refuse_visible(step)
    for summary in pipeline.summaries.values():
        _check_summary(pipeline, summary)
    for table in pipeline.tables.values():
        _check_table(pipeline, table)
    for view in pipeline.views.values():
        check_view(pipeline, view)
    if not pipeline.sources:
        raise DeclarationError(
            f"pipeline '{pipeline.name}' has no source. Add pipeline.source(name, Files(...))."
        )
    places = (pipeline.sources, pipeline.references, pipeline.sinks)
    for one in (one for named in places for one in named.values()):
        _check_place(one)
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


def _check_place(one: DeclaredSource | Reference | Sink) -> None:
    """Files are on this machine: a path elsewhere would become a local folder of that name."""
    path = getattr(one.connector, "path", None)
    if hasattr(one.connector, "snapshot") and isinstance(path, str) and FAR.match(path):
        raise DeclarationError(
            f"{one.where}: '{one.name}' has the path '{path}', which is not a folder of this "
            "machine. Files reads and writes local folders: mount the store, or copy its files."
        )


def _check_pull(pipeline: Pipeline, pull: Pull) -> None:
    if not hasattr(pull.system, "reader"):
        raise DeclarationError(
            f"{pull.where}: pull '{pull.name}' has a {type(pull.system).__name__}, which is not a "
            "system to pull from. Give HttpPull(...) or PostgresPull(...)."
        )
    source = pipeline.sources.get(pull.into)
    if source is None:
        raise DeclarationError(
            f"{pull.where}: pull '{pull.name}' writes to the source '{pull.into}', which is not "
            f"declared.{did_you_mean(pull.into, pipeline.sources)}"
        )
    if not source.connector.records.written.takes_json_lines or not hasattr(
        source.connector, "snapshot"
    ):
        raise DeclarationError(
            f"{pull.where}: pull '{pull.name}' writes JSON lines, but '{pull.into}' does not read "
            "them. Declare that source as Files(..., format='json')."
        )


def _check_alert(pipeline: Pipeline, alert: Alert) -> None:
    known = {**pipeline.tables, **pipeline.summaries, **pipeline.views}
    if alert.reads not in known:
        raise DeclarationError(
            f"{alert.where}: {alert.name}() reads '{alert.reads}', which is not a table, summary "
            f"or view.{did_you_mean(alert.reads, known)}"
        )
    check_delivered(pipeline, alert)


def _check_sink(pipeline: Pipeline, sink: Sink) -> None:
    readable: dict[str, tuple[Mapping[str, Any], str]] = {
        "rows": (pipeline.tables, "Rows, of a table"),
        "changes": (
            {**pipeline.summaries, **pipeline.views},
            "Changes, of a summary or view",
        ),
        "alerts": (pipeline.alerts, "Alerts, of an alert"),
    }
    known, what = readable[sink.kind]
    if sink.reads not in known:
        raise DeclarationError(
            f"{sink.where}: {sink.name}() reads '{sink.reads}' as {what}, but it is not "
            f"declared.{did_you_mean(sink.reads, known)}"
        )
    check_delivered(pipeline, sink)
    try:
        _ = sink.connector.goes_to
        lacks = [name for name in DESTINATION if not hasattr(sink.destination(), name)]
    except AttributeError:
        lacks = ["goes_to"]
    except DeclarationError as error:
        raise DeclarationError(f"{sink.where}: {error}") from None
    if lacks:
        raise DeclarationError(
            f"{sink.where}: {sink.name}() writes to {type(sink.connector).__name__}, which is not "
            "a destination. Give Kafka(...), Files(...), Console(), Memory(), Foreach(...), or a "
            f"Destination of your own, which needs {' and '.join(lacks)}."
        )
    for other in pipeline.sinks.values():
        if other is not sink and other.destination() is sink.destination():
            raise DeclarationError(
                f"{sink.where}: {sink.name}() shares its destination with {other.name}(). Give "
                "each sink a destination object of its own."
            )
    for source in pipeline.sources.values():
        if _reads_back(source.connector, sink.connector):
            raise DeclarationError(
                f"{sink.where}: {sink.name}() writes to the input of the source '{source.name}', "
                "so its output would come in again. Write it elsewhere."
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
            f"{table.where}: {table.name}() has sequence_by without a key. Add 'key', which says "
            "which records replace each other."
        )
    if table.apply_as_deletes is not None and table.sequence_by is None:
        raise DeclarationError(
            f"{table.where}: {table.name}() has apply_as_deletes without sequence_by. Add "
            "sequence_by: it decides the order of a deletion and what it deletes."
        )
    for option in ("key_optional", "content_ignores"):
        if getattr(table, option) and not table.key:
            raise DeclarationError(
                f"{table.where}: {table.name}() has {option} without a key. A table without a key "
                f"keeps every record: add a key, or remove {option}."
            )
    source = pipeline.sources.get(table.stream)
    if source is None:
        if table.key:
            raise DeclarationError(
                f"{table.where}: {table.name}() has a key but reads the table '{table.stream}'. "
                "Duplicates are found where records enter: put the key on the table that reads the "
                "source."
            )
        return
    if hasattr(source.connector, "check_table"):
        source.connector.check_table(table)
    if makes_key(pipeline, table):
        return  # Spark knows which columns the step makes
    names = [field.name for field in source.connector.fields]
    for column in table.content_ignores:
        if column not in names:
            raise DeclarationError(
                f"{table.where}: {table.name}() has content_ignores '{column}', which "
                f"'{source.name}' does not have.{did_you_mean(column, names)}"
            )


def makes_key(pipeline: Pipeline, table: Table) -> bool:
    """Whether a column of the table's key is none of its source: the step must make it."""
    source = pipeline.sources.get(table.stream)
    names = [field.name for field in source.connector.fields] if source else []
    return any(column not in names for column in table.key)


def _check_summary(pipeline: Pipeline, summary: Summary) -> None:
    if summary.stream not in pipeline.tables:
        raise DeclarationError(
            f"{summary.where}: {summary.name}() reads the source '{summary.stream}'. A summary "
            "reads a table: declare a table that reads this source."
        )
    if summary.snapshots:
        raise DeclarationError(
            f"{summary.where}: {summary.name}() reads the reference '{summary.snapshots[0]}', but "
            "a summary reads only the Stream of one table. Join the reference in a table and let "
            "the summary read that table."
        )
    if len(set(summary.key)) != len(summary.key):
        raise DeclarationError(
            f"{summary.where}: {summary.name}() has a key column twice. Remove one of them."
        )
    if summary.time is not None and summary.time not in summary.key:
        raise DeclarationError(
            f"{summary.where}: {summary.name}() has the time '{summary.time}', which is not in "
            f"its key.{did_you_mean(summary.time, summary.key)}"
        )
    if (summary.time is None) != (summary.width is None):
        raise DeclarationError(
            f"{summary.where}: {summary.name}() needs both time and width, or neither."
        )


def _ordered(pipeline: Pipeline) -> list[Table]:
    """Tables after the tables they read."""
    done: list[Table] = []
    waiting = dict(pipeline.tables)
    while waiting:
        ready = [t for t in waiting.values() if t.stream not in waiting]
        if not ready:
            names = " -> ".join(waiting)
            first = next(iter(waiting.values()))
            raise DeclarationError(
                f"{first.where}: these tables read each other: {names}. Remove one of these inputs."
            )
        for table in ready:
            done.append(table)
            del waiting[table.name]
    return done
