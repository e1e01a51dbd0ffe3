"""Posting: the change of every measure per key, and the records behind it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tapeline.books.query import connect
from tapeline.books.schemas import JOURNAL, POSITION, with_columns
from tapeline.errors import TapelineBug
from tapeline.run.judging import Given
from tapeline.run.steps import CARRIED, SummaryStep

# For so few rows DuckDB takes longer to plan the query than Arrow to add them up.
FEW_ROWS = 2_000
MOST_DIGITS, MOST_INTEGER = 37, 2**62


@dataclass(frozen=True)
class Posted:
    """A summary's batch: journal entries, and one link per record behind them."""

    journal: pa.Table
    links: pa.Table
    entries: int
    counted: int  # net rows of the table that the summary counts
    left_out: int  # net rows that its filter leaves out
    measures: dict[str, str]


def post(step: SummaryStep, given: Given, batch: int, clock: int) -> Posted:
    """The journal entries of a batch of a table's rows, those taken back counting against."""
    whole = [rows for rows in (given.rows, given.back_rows) if rows is not None]
    leaf = _numbered(pa.concat_tables(whole).select(list(step.needs)))
    rows = step.prepared.run(leaf)
    links = _links(step, rows, batch)
    journal = _add_up(step, links, batch, clock)
    signs = _total(links["_sign"])
    entries = _total(journal["_entries"])
    if signs != entries:
        raise TapelineBug(f"{step.summary.name}: {signs} rows posted, {entries} in the journal.")
    measures = {name: str(pc.sum(journal[name]).as_py() or 0) for name in step.measures}
    counted = _counted(rows)
    came = _total(pc.struct_field(leaf["_position"].combine_chunks(), "sign"))
    return Posted(journal, links, entries, counted, came - counted, measures)


def _total(numbers: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(numbers).as_py() or 0)


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


def _add_up(step: SummaryStep, links: pa.Table, batch: int, clock: int) -> pa.Table:
    """The shares by key and cause, those of records taken back with a minus."""
    schema = with_columns(step.columns, JOURNAL)
    if not links.num_rows:
        return schema.empty_table()
    groups = [*step.summary.key, "_cause"]
    sums = [*step.measures, "_entries"]
    signed = {name: _signed(links[name], links["_sign"]) for name in step.measures}
    shares = pa.table(
        {**{name: links[name] for name in groups}, **signed, "_entries": links["_sign"]}
    )
    few = links.num_rows <= FEW_ROWS and all(_fits(shares[name]) for name in step.measures)
    added = (_in_arrow if few else _in_duckdb)(shares, groups, sums)
    constants = {"_batch": batch, "_clock": clock}
    for name, value in constants.items():
        numbers = np.full(added.num_rows, value, dtype=np.int64)
        added = added.append_column(name, pa.array(numbers))
    return added.select(schema.names).cast(schema)


def _signed(shares: pa.ChunkedArray, signs: pa.ChunkedArray) -> pa.ChunkedArray:
    if pc.min(signs).as_py() > 0:
        return shares
    return pc.if_else(pc.greater(signs, 0), shares, pc.negate(shares))


def _fits(shares: pa.ChunkedArray) -> bool:
    """Whether no sum of these can leave Arrow's own type: it would not say so."""
    ends = pc.min_max(shares).as_py()
    most = max(abs(ends["min"] or 0), abs(ends["max"] or 0)) * len(shares)
    if pa.types.is_decimal(shares.type):
        return bool(most < Decimal(10) ** (MOST_DIGITS - shares.type.scale))
    return bool(most < MOST_INTEGER)


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
    arrays = [numbers if f.name == "ordinal" else position.field(f.name) for f in CARRIED]
    place = rows.schema.get_field_index("_position")
    numbered = pa.StructArray.from_arrays(arrays, fields=list(CARRIED))
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
