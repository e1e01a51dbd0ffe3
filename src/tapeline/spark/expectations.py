"""Expectations as columns: which sentences a row breaks, by what becomes of it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tapeline.declare import Expectation, Table
from tapeline.declare.duration import parse_duration
from tapeline.formats.faults import FAULT_SEPARATOR


def mark_broken(rows: DataFrame, table: Table, arrives: bool) -> DataFrame:
    """Add `_quarantine`, `_drop`, `_fail` and `_warn`: the broken sentences, one per line.

    A condition that is null is broken: what is not known to hold does not hold.
    """
    future = [_future(table)] if arrives and table.time else []
    return rows.withColumns(
        {
            "_quarantine": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "quarantine"), *future),
            "_drop": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "drop")),
            "_fail": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "fail")),
            "_warn": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "keep"), *_warned(rows)),
        }
    )


def _warned(rows: DataFrame) -> list[Column]:
    """What decoding warns of, where it does."""
    kind = rows.schema["_position"].dataType
    names = kind.names if isinstance(kind, StructType) else []
    return [F.col("_position.warnings")] if "warnings" in names else []


def _broken(table: Table, action: str) -> list[Column]:
    return [_sentence(e) for e in table.expectations if e.action == action]


def _sentence(expectation: Expectation) -> Column:
    holds = F.coalesce(F.expr(expectation.condition), F.lit(False))
    return F.when(~holds, F.lit(expectation.sentence))


def _future(table: Table) -> Column:
    """A record from the future must not move the clock."""
    micros = int(parse_duration(table.future_after).total_seconds() * 1_000_000)
    latest = F.col("_position.arrived_at") + F.expr(f"interval {micros} microseconds")
    text = f"{table.time} is more than {table.future_after} in the future"
    return F.when(F.col(f"`{table.time}`") > latest, F.lit(text))
