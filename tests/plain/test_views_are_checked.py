"""Views are parsed by `plan`, and checked on empty inputs once their columns are known."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tapeline import DeclarationError, Files, Pipeline, Stream
from tapeline.plan import resolve
from tapeline.plan.views import refuse_wrong_views, view_inputs
from tapeline.sql.duckdb import names_read

SHAPES = {
    "sales": pa.schema([("id", pa.string()), ("order", pa.int64()), ("day", pa.date32())]),
    "totals": pa.schema([("day", pa.date32()), ("money", pa.decimal128(22, 2))]),
}


def shop(**views: str) -> Pipeline:
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("drop/", schema="id string, `order` bigint, day date"))

    @pipeline.table(key="id")
    def sales(raw: Stream) -> Any:
        return raw

    @pipeline.summary(key="day")
    def totals(sales: Stream) -> Any:
        return sales.groupBy("day").count()

    for name, sql in views.items():
        pipeline.view(name, sql)
    return pipeline


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select extract(day from day) as d from totals", ("totals",)),
        ("with a as (select 1 as n) select * from a, sales", ("sales",)),
        ("select * from totals where day is distinct from date '2026-11-13'", ("totals",)),
        ('select * from "Sales" join totals using (day)', ("sales", "totals")),
        ("select 'from nowhere' as words from totals", ("totals",)),
    ],
)
def test_the_names_that_a_select_reads(sql: str, names: tuple[str, ...]) -> None:
    assert names_read(sql) == names


def test_a_view_may_read_tables() -> None:
    pipeline = shop(dated="select * from sales join totals using (day)", m="select * from dated")
    resolve(pipeline)
    assert view_inputs(pipeline, pipeline.views["dated"]) == ["sales", "totals"]
    refuse_wrong_views(pipeline, SHAPES)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select order from sales", "'wrong' cannot be parsed.*double quotes.*select order from"),
        ("selekt 1", "cannot be parsed"),
        ("insert into totals values (1)", "must be one SELECT"),
        ("select * from raw", "reads 'raw', which is not a summary, table or reference"),
        ("select * from total", "reads 'total'.*Did you mean 'totals'"),
    ],
)
def test_a_view_that_cannot_be_read_is_refused_without_spark(sql: str, words: str) -> None:
    with pytest.raises(DeclarationError, match=rf"(?s)test_views_are_checked.py:\d+: .*{words}"):
        resolve(shop(wrong=sql))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select mony from totals", "Candidate bindings.*money"),
        ("select sum(id) as n from sales", "No function matches"),
        ("select day, sum(money) as m from totals", "must appear in the GROUP BY"),
    ],
)
def test_a_view_that_does_not_suit_its_inputs_is_refused(sql: str, words: str) -> None:
    pipeline = shop(right='select "order" from sales', wrong=sql)
    resolve(pipeline)
    with pytest.raises(DeclarationError, match=f"(?s)view 'wrong' does not work.*{words}"):
        refuse_wrong_views(pipeline, SHAPES)
