"""Posting: the change of every measure per key, and the records behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.query import connect
from tapeline.books.schemas import JOURNAL, POSITION, with_columns
from tapeline.errors import TapelineBug
from tapeline.run.register import Given
from tapeline.run.steps import CARRIED, SummaryStep


@dataclass(frozen=True)
class Posted:
    """A summary's batch: journal entries, and one link per record behind them."""

    journal: pa.Table
    links: pa.Table
    entries: int
    counted: int  # rows of the table that the summary counts
    left_out: int  # rows that its filter leaves out
    measures: dict[str, str]


def post(step: SummaryStep, given: Given, batch: int) -> Posted:
    """The journal entries of a batch of a table's rows."""
    rows = step.prepared.run(_numbered(given.rows.select(list(step.needs))))
    links = _links(step, rows, batch)
    journal = _add_up(step, links, batch)
    signs = pc.sum(links["_sign"]).as_py() or 0
    entries = pc.sum(journal["_entries"]).as_py() or 0
    if signs != entries:
        raise TapelineBug(f"{step.summary.name}: {signs} rows posted, {entries} in the journal.")
    measures = {name: str(pc.sum(journal[name]).as_py() or 0) for name in step.measures}
    counted = _counted(rows)
    return Posted(journal, links, entries, counted, given.rows.num_rows - counted, measures)


def _links(step: SummaryStep, rows: pa.Table, batch: int) -> pa.Table:
    """Each record's own share. Shares of a record that is taken back count against."""
    position = rows["_position"].combine_chunks()
    where = pa.StructArray.from_arrays(
        [pc.struct_field(position, name) for name in ("source", "part", "at")],
        fields=list(POSITION),
    )
    added = {
        "_position": where,
        "_sign": pc.struct_field(position, "sign"),
        "_cause": pc.struct_field(position, "cause"),
        "_batch": pa.array(np.full(rows.num_rows, batch, dtype=np.int64)),
    }
    own = {name: rows[name] for name in step.columns.names}
    return pa.table({**own, **added}).cast(step.links_schema)


def _add_up(step: SummaryStep, links: pa.Table, batch: int) -> pa.Table:
    schema = with_columns(step.columns, JOURNAL)
    if not links.num_rows:
        return schema.empty_table()
    keys = ", ".join(f'"{name}"' for name in step.summary.key)
    sums = ", ".join(
        f'sum(case when _sign > 0 then "{name}" else -"{name}" end) as "{name}"'
        for name in step.measures
    )
    query = (
        f"select {keys}, {sums}, sum(_sign) as _entries, _cause, {int(batch)} as _batch "
        f"from links group by {keys}, _cause order by {keys}, _cause"
    )
    with connect() as connection:
        connection.register("links", links)
        return connection.sql(query).to_arrow_table().select(schema.names).cast(schema)


def _numbered(rows: pa.Table) -> pa.Table:
    """The rows with their own numbers in `_position`: a record may have made several."""
    position = rows["_position"].combine_chunks()
    numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    arrays = [numbers if f.name == "ordinal" else position.field(f.name) for f in CARRIED]
    place = rows.schema.get_field_index("_position")
    numbered = pa.StructArray.from_arrays(arrays, fields=list(CARRIED))
    return rows.set_column(place, rows.schema.field(place), numbered)


def _counted(rows: pa.Table) -> int:
    """How many rows of the table have a share in the summary."""
    if not rows.num_rows:
        return 0
    seen: int = pc.count_distinct(
        pc.struct_field(rows["_position"].combine_chunks(), "ordinal")
    ).as_py()
    return seen
