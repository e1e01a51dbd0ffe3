"""What a step reads: one stream, and references beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tapeline.declare import Input, Pipeline, Step
from tapeline.declare.select import Select
from tapeline.errors import DeclarationError, did_you_mean

AnyStep = TypeVar("AnyStep", bound=Step)
INSTEAD = (
    "A step cannot join two streams. If '{0}' is a file of facts, declare it with "
    "pipeline.reference(...) and read it as a Snapshot; otherwise sum up each stream in a summary "
    "of its own and join the summaries in a view."
)


def know_references(pipeline: Pipeline) -> None:
    """Which names of a SELECT are references, once everything is declared."""
    for table in pipeline.tables.values():
        pipeline.tables[table.name] = _with_references(table, pipeline)
    for summary in pipeline.summaries.values():
        pipeline.summaries[summary.name] = _with_references(summary, pipeline)


def _with_references(step: AnyStep, pipeline: Pipeline) -> AnyStep:
    if not isinstance(step.function, Select):
        return step
    inputs = tuple(
        Input(one.name, "snapshot" if one.name in pipeline.references else "stream")
        for one in step.inputs
    )
    return step if inputs == step.inputs else replace(step, inputs=inputs)


def check_inputs(pipeline: Pipeline, step: Step) -> None:
    """Refuse names that nobody declared, and more or less than one stream."""
    in_sql = isinstance(step.function, Select)
    for given in step.inputs:
        if given.name not in pipeline.declared:
            hint = did_you_mean(given.name, pipeline.declared)
            raise DeclarationError(
                f"{step.where}: {step.name}() reads '{given.name}', which is not declared.{hint}"
            )
        streams = given.name in pipeline.sources or given.name in pipeline.tables
        if given.kind == "stream" and not streams:
            remedy = "A view can read it." if in_sql else "Annotate it as Snapshot."
            raise DeclarationError(
                f"{step.where}: {step.name}() reads '{given.name}' as a Stream, but only sources "
                f"and tables are streams. {remedy}"
            )
        if given.kind == "snapshot" and given.name not in pipeline.references:
            alone = all(other.kind != "stream" for other in step.inputs)
            remedy = "Annotate it as Stream." if alone else INSTEAD.format(given.name)
            raise DeclarationError(
                f"{step.where}: {step.name}() reads '{given.name}' as a Snapshot, but only "
                f"references are. {remedy}"
            )
    streams_read = [given.name for given in step.inputs if given.kind == "stream"]
    if len(streams_read) != 1:
        named = f" ({', '.join(streams_read)})" if streams_read else ""
        lacking = "Read one source or table." if in_sql else "Annotate one as Stream."
        remedy = INSTEAD.format(streams_read[-1]) if streams_read else lacking
        raise DeclarationError(
            f"{step.where}: {step.name}() reads {len(streams_read)} Streams{named}. A step reads "
            f"exactly one Stream, and references as Snapshots. {remedy}"
        )
