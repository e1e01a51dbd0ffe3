"""Posting: the change of every measure per key, and the records it comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books import exact
from tapeline.books.schemas import JOURNAL, with_columns
from tapeline.errors import TapelineBug
from tapeline.flow.culprits import shares
from tapeline.flow.step_input import StepInput
from tapeline.flow.steps import SummaryStep
from tapeline.store.duckdb import connect

# For so few rows DuckDB takes longer to plan the query than Arrow to add them up.
FEW_ROWS = 2_000


@dataclass(frozen=True)
class SummaryResult:
    """A summary's batch: journal entries, and one link to each record they come from."""

    journal: pa.Table
    links: pa.Table
    entries: int
    counted: int  # net rows of the table that the summary counts
    left_out: int  # net rows that its filter leaves out
    measures: dict[str, str]


def post(
    step: SummaryStep, given: StepInput, batch: int, clock: int, culprits: int
) -> SummaryResult:
    """The journal entries of a batch of a table's rows, those taken back counting against."""
    several = (given.rows, given.tried_rows, given.back_rows)
    whole = [rows for rows in several if rows is not None]
    leaf = _numbered(pa.concat_tables(whole).select(list(step.needs)))
    rows = shares(step, given, leaf, culprits)
    links = _links(step, rows, batch)
    journal, measures = _add_up(step, links, batch, clock)
    signs = _total(links["_sign"])
    entries = _total(journal["_entries"])
    if signs != entries:
        raise TapelineBug(f"{step.summary.name}: {signs} rows posted, {entries} in the journal.")
    counted = _counted(rows)
    came = _total(pc.struct_field(leaf["_position"].combine_chunks(), "sign"))
    return SummaryResult(journal, links, entries, counted, came - counted, measures)


def _total(numbers: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(numbers).as_py() or 0)


def _links(step: SummaryStep, rows: pa.Table, batch: int) -> pa.Table:
    """Each record's own share. Shares of a record that is taken back count against."""
    position = rows["_position"].combine_chunks()
    where = pa.StructArray.from_arrays(
        [pc.struct_field(position, field.name) for field in step.position],
        fields=list(step.position),
    )
    added = {
        "_position": where,
        "_sign": pc.struct_field(position, "sign"),
        "_cause": pc.struct_field(position, "cause"),
        "_batch": pa.array(np.full(rows.num_rows, batch, dtype=np.int64)),
    }
    own = {name: rows[name] for name in step.columns.names}
    return pa.table({**own, **added}).cast(step.links_schema)


def _add_up(
    step: SummaryStep, links: pa.Table, batch: int, clock: int
) -> tuple[pa.Table, dict[str, str]]:
    """The shares by key and cause, those of records taken back with a minus; and all of them."""
    schema = with_columns(step.columns, JOURNAL)
    if not links.num_rows:
        return schema.empty_table(), dict.fromkeys(step.measures, "0")
    fits = all(_fits(links[name]) for name in step.measures)
    signed = {}
    for name in step.measures:
        shares = links[name] if fits else exact.widened(links[name])
        signed[name] = _signed(shares, links["_sign"])
    groups = [*step.summary.key, "_cause"]
    own = {name: links[name] for name in groups}
    shares = pa.table({**own, **signed, "_entries": links["_sign"]})
    few = links.num_rows <= FEW_ROWS or not fits
    added = (_in_arrow if few else _in_duckdb)(shares, groups, [*step.measures, "_entries"])
    constants = {"_batch": batch, "_clock": clock}
    for name, value in constants.items():
        numbers = np.full(added.num_rows, value, dtype=np.int64)
        added = added.append_column(name, pa.array(numbers))
    measures = {name: exact.text(pc.sum(added[name]).as_py()) for name in step.measures}
    if fits:
        return added.select(schema.names).cast(schema), measures
    return exact.in_parts(added, schema, step.measures), measures


def _signed(shares: pa.ChunkedArray, signs: pa.ChunkedArray) -> pa.ChunkedArray:
    if pc.min(signs).as_py() > 0:
        return shares
    return pc.if_else(pc.greater(signs, 0), shares, pc.negate(shares))


def _fits(shares: pa.ChunkedArray) -> bool:
    """Whether no sum of these can leave their own type: Arrow would not say so."""
    return exact.reach(shares) * len(shares) <= exact.Kind.of(shares.type).most


def _in_arrow(shares: pa.Table, groups: list[str], sums: list[str]) -> pa.Table:
    added = shares.group_by(groups).aggregate([(name, "sum") for name in sums])
    added = added.rename_columns([name.removesuffix("_sum") if name not in groups else name
                                  for name in added.column_names])  # fmt: skip
    return added.sort_by([(name, "ascending") for name in groups])


def _in_duckdb(shares: pa.Table, groups: list[str], sums: list[str]) -> pa.Table:
    by = ", ".join(f'"{name}"' for name in groups)
    totals = ", ".join(f'sum("{name}") as "{name}"' for name in sums)
    with connect() as connection:
        connection.register("shares", shares)
        query = f"select {by}, {totals} from shares group by {by} order by {by}"
        return connection.sql(query).to_arrow_table()


def _numbered(rows: pa.Table) -> pa.Table:
    """The rows with their own numbers in `_position`: a record may have made several."""
    position = rows["_position"].combine_chunks()
    numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    carried = list(position.type)
    arrays = [numbers if f.name == "ordinal" else position.field(f.name) for f in carried]
    place = rows.schema.get_field_index("_position")
    numbered = pa.StructArray.from_arrays(arrays, fields=carried)
    return rows.set_column(place, rows.schema.field(place), numbered)


def _counted(rows: pa.Table) -> int:
    """How many rows of the table have a share in the summary, those taken back counting against."""
    if not rows.num_rows:
        return 0
    position = rows["_position"].combine_chunks()
    ordinals = pc.struct_field(position, "ordinal").to_numpy()
    signs = pc.struct_field(position, "sign").to_numpy()
    _, first = np.unique(ordinals, return_index=True)
    return int(signs[first].sum())
