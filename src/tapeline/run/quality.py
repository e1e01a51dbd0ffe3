"""Expectations as columns: which sentences a row breaks, by what becomes of it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tapeline.declare import Expectation, Table
from tapeline.declare.duration import parse_duration
from tapeline.run.cells import FAULT_SEPARATOR


def judge(rows: DataFrame, table: Table, arrives: bool) -> DataFrame:
    """Add `_quarantine`, `_drop`, `_fail` and `_warn`: the broken sentences, one per line.

    A condition that is null is broken: what is not known to hold does not hold.
    """
    future = [_future(table)] if arrives and table.time else []
    return rows.withColumns(
        {
            "_quarantine": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "quarantine"), *future),
            "_drop": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "drop")),
            "_fail": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "fail")),
            "_warn": F.concat_ws(FAULT_SEPARATOR, *_broken(table, "keep")),
        }
    )


def _broken(table: Table, action: str) -> list[Column]:
    return [_sentence(e) for e in table.expectations if e.action == action]


def _sentence(expectation: Expectation) -> Column:
    holds = F.coalesce(F.expr(expectation.condition), F.lit(False))
    return F.when(~holds, F.lit(expectation.sentence))


def _future(table: Table) -> Column:
    """A record from the future must not move the clock."""
    micros = int(parse_duration(table.future_after).total_seconds() * 1_000_000)
    latest = F.col("_position.arrived_at") + F.expr(f"interval {micros} microseconds")
    text = f"{table.time} lies more than {table.future_after} after arrival"
    return F.when(F.col(f"`{table.time}`") > latest, F.lit(text))
