"""Steps in SQL: what a SELECT reads, and where the place of a record goes through it."""

from __future__ import annotations

from typing import Any

import pytest

from tapeline import DeclarationError, Files, Pipeline, expect_or_quarantine
from tapeline.sql.spark import parse_select
from tapeline.sql.tokens import NotASelectError
from tapeline.testing import plan_of

READS = {
    "select * from raw": ("raw",),
    "select a from raw r left join facts as f on r.id = f.id": ("raw", "facts"),
    "select a from raw, facts": ("raw", "facts"),
    "select a from `raw` join facts using (id)": ("raw", "facts"),
    "select a from (facts f join raw on f.id = raw.id)": ("facts", "raw"),
    "select extract(day from at) d, a is distinct from b x from raw": ("raw",),
    "select 'from x' as a, \"from y\" as b -- from z\n /* from w */ from raw": ("raw",),
    "select a from raw lateral view explode(items) t as a, b where a > 1": ("raw",),
    "select a from raw, lateral explode(items) as t(a)": ("raw",),
    "with x as (select * from raw), y(a) as (select b from x) select a from y": ("raw",),
    "select a from raw where a in (select b from facts)": ("raw", "facts"),
    "select a from RAW join (values (1, 2)) as v(a, b) using (a)": ("raw",),
    r"select r'\' as a, 'it\'s from x' as b from raw": ("raw",),
}


@pytest.mark.parametrize("sql", READS)
def test_the_names_that_a_select_reads(sql: str) -> None:
    assert parse_select(sql).names == READS[sql]


PLACED = {
    "select * from raw": "select * from v_raw as raw",
    "select a from raw": "select a , raw._position from v_raw as raw",
    "select r.* from raw r join facts f on true": "select r.* from v_raw r join v_facts f on true",
    "select f.* from raw r join facts f on true": (
        "select f.* , r._position from v_raw r join v_facts f on true"
    ),
    "select a * b as c from raw": "select a * b as c , raw._position from v_raw as raw",
    "select a from (select b as a from raw)": (
        "select a , _position from (select b as a , raw._position from v_raw as raw)"
    ),
    "with x as (select a from raw) select a, count(*) as n from x group by a": (
        "with x as (select a , raw._position from v_raw as raw) "
        "select a, count(*) as n from x group by a"
    ),
    "select a as b, n from (select a, sum(n) as n from raw group by a) q": (
        "select a as b, n from (select a, sum(n) as n from v_raw as raw group by a) q"
    ),
    "select count(*) as n from raw": "select count(*) as n from v_raw as raw",
    "select a, raw._position from raw": "select a, raw._position from v_raw as raw",
}


@pytest.mark.parametrize("sql", PLACED)
def test_the_place_of_a_record_reaches_the_end_or_the_aggregation(sql: str) -> None:
    parsed = parse_select(sql)
    views = {name: f"v_{name}" for name in parsed.names}
    assert parsed.over(views, "raw") == PLACED[sql]


def test_without_a_place_only_the_names_are_replaced() -> None:
    assert parse_select("select a from raw").over({"raw": "v"}, None) == "select a from v as raw"


WINDOWS = {
    "select window, sum(x) as x from raw group by window(at, '1 hour')": {"window"},
    "select window(at, '1 hour') as w, count(*) n from raw group by 1": {"w"},
    "select window(at, '1 hour'), count(*) n from raw group by 1": {"window"},
    "select window.start as s, count(*) n from raw group by window(at, '1 hour')": set(),
    "select w, count(*) from (select window(at, '1 hour') w from raw) group by w": {"w"},
}


@pytest.mark.parametrize("sql", WINDOWS)
def test_windows_have_names(sql: str) -> None:
    assert parse_select(sql).windows == WINDOWS[sql]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("insert into x select 1", "must be one SELECT"),
        ("", "must be one SELECT"),
        ("select 1; select 2", "without ';'"),
        ("select a from (raw", r"lacks a '\)'"),
        ("select * from parquet.`/etc/passwd`", "by the names that the pipeline gives"),
        ("select * from spark_catalog.default.x", "by the names that the pipeline gives"),
    ],
)
def test_what_is_not_one_select_over_names_is_refused(sql: str, words: str) -> None:
    with pytest.raises(NotASelectError, match=words):
        parse_select(sql)


def pipeline() -> Pipeline:
    made = Pipeline("shop")
    made.source("raw", Files("landing/", schema="id string, item string, amount int"))
    return made


def test_names_become_streams_and_references_in_any_order_of_declaration() -> None:
    made = pipeline()
    made.table("orders", sql="select * from raw join items using (item)", key="id", about="All.")
    made.reference("items", Files("items.csv", format="csv"))
    made.summary(
        "totals", sql="select item, sum(amount) as a from orders group by item", key="item"
    )
    orders = plan_of(made).tables[0]
    assert (orders.stream, orders.snapshots, orders.about) == ("raw", ("items",), "All.")
    assert made.summaries["totals"].stream == "orders"
    assert str(orders.where).startswith("tests/plain/test_sql_steps.py:")


def test_expectations_are_a_list() -> None:
    made = pipeline()
    rule = expect_or_quarantine("the amount is known", "amount is not null")
    made.table("orders", sql="select * from raw", expect=[rule])
    assert made.tables["orders"].expectations == (rule,)


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        (
            "orders",
            {"sql": "select * from rwa"},
            "reads 'rwa', which is not declared. Did you mean",
        ),
        ("orders", {"sql": "delete from raw"}, "the sql of orders must be one SELECT"),
        ("orders", {"sql": "select 1 as a"}, "reads 0 Streams.*Read one source or table"),
        ("orders", {"sql": "select * from raw join other using (id)"}, "reads 2 Streams"),
        ("orders", {"sql": "select * from v"}, "only sources and tables are streams. A view can"),
        ("orders", {"key": "id"}, r"Write table\(key='orders'\), or table\('orders', sql=...\)"),
        ("orders", {"sql": "select * from raw", "keys": "id"}, "no option 'keys'. Did you mean"),
        ("orders", {"sql": "select * from raw", "expect": ["amount > 0"]}, "Write a list such as"),
        ("Orders", {"sql": "select * from raw"}, "'Orders' cannot be a name"),
        ("raw", {"sql": "select * from raw"}, "'raw' is already used at"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(
    name: str, said: dict[str, Any], words: str
) -> None:
    made = pipeline()
    made.source("other", Files("other/", schema="id string"))
    made.view("v", "select 1 as a")

    def declare() -> None:
        made.table(name, **said)
        plan_of(made)

    with pytest.raises(DeclarationError, match=rf"test_sql_steps.py:\d+: .*{words}"):
        declare()


def test_a_summary_in_sql_is_checked_like_one_in_python() -> None:
    made = pipeline()
    made.table("orders", sql="select * from raw")
    with pytest.raises(DeclarationError, match="has no key"):
        made.summary("totals", sql="select count(*) as n from orders")  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="expectations belong to tables"):
        made.summary("totals", sql="select 1", key="a", expect=[])  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="without sql"):
        made.summary(key="a", about="x")  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="sql but no name"):
        made.table(sql="select * from raw")  # type: ignore[call-overload]
