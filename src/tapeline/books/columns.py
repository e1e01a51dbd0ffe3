"""The columns of what can be read, from the tables' logs: known before the first row is."""

from __future__ import annotations

import pyarrow as pa

from tapeline.books.exact import OVERFLOW
from tapeline.books.layout import Layout
from tapeline.books.measures import shown_fields
from tapeline.books.schemas import JOURNAL, UNREAD
from tapeline.declare import Pipeline, Summary
from tapeline.store.delta_files import stored_schema


def shape_of(plan: Pipeline, layout: Layout, name: str, generation: int) -> pa.Schema:
    """The columns of a summary, table or reference as a reader sees them."""
    if name in plan.tables:
        stored = stored_schema(layout.register(name, generation))
        return pa.schema([field for field in stored if field.name not in UNREAD])
    if name in plan.references:
        stored = stored_schema(layout.reference(name))
        return pa.schema([field for field in stored if field.name != "_batch"])
    return summary_shape(plan.summaries[name], stored_schema(layout.journal(name, generation)))


def summary_shape(summary: Summary, stored: pa.Schema) -> pa.Schema:
    """The columns of a summary as a reader sees them, from those of its journal."""
    key = [stored.field(column) for column in summary.key]
    status = [pa.field("_status", pa.string())] if summary.time is not None else []
    more = [stored.field("_entries"), *status, pa.field(OVERFLOW, pa.bool_())]
    return pa.schema([*key, *shown_fields(stored, measures(summary, stored)), *more])


def measures(summary: Summary, stored: pa.Schema) -> list[str]:
    """The measures among a journal's columns."""
    own = {name for name, _ in JOURNAL}
    return [name for name in stored.names if name not in summary.key and name not in own]
