"""Saying: what can be declared, and what is refused at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tapeline import DeclarationError, Files, Pipeline, Snapshot, Stream, expect, expect_or_drop
from tapeline.declare.duration import parse_duration
from tapeline.declare.schema import parse_schema
from tapeline.plan import resolve
from tapeline.plan.graph import makes_key

SCHEMA = "id string, at timestamp, amount decimal(18,2)"


def small() -> Pipeline:
    pipeline = Pipeline("small")
    pipeline.source("raw", Files("landing/", schema=SCHEMA))
    return pipeline


def test_a_decorator_gives_the_function_back() -> None:
    pipeline = small()

    def rows(raw: Stream) -> object:
        return raw

    assert pipeline.table(key="id")(rows) is rows
    assert rows("unchanged") == "unchanged"


def test_expectations_keep_the_order_in_which_they_are_read() -> None:
    pipeline = small()

    @pipeline.table
    @expect("first", "true")
    @expect_or_drop("second", "true")
    def rows(raw: Stream) -> object:
        return raw

    assert [e.sentence for e in pipeline.tables["rows"].expectations] == ["first", "second"]


def test_an_unknown_input_is_refused_with_a_suggestion_and_its_place() -> None:
    pipeline = small()

    @pipeline.table
    def trades(raw: Stream) -> object:
        return raw

    @pipeline.summary(key="id")
    def totals(trade: Stream) -> object:
        return trade

    with pytest.raises(DeclarationError, match=r"test_declare.py:\d+: totals\(\) reads 'trade', "
                       "which is not declared. Did you mean 'trades'?"):  # fmt: skip
        resolve(pipeline)


def test_tables_that_read_each_other_are_refused() -> None:
    pipeline = small()

    @pipeline.table
    def one(two: Stream) -> object:
        return two

    @pipeline.table
    def two(one: Stream) -> object:
        return one

    with pytest.raises(DeclarationError, match="read each other: one -> two"):
        resolve(pipeline)


def test_a_reference_is_no_stream() -> None:
    pipeline = small()
    pipeline.reference("facts", Files("facts.csv", format="csv"))

    @pipeline.table
    def rows(facts: Stream) -> object:
        return facts

    with pytest.raises(DeclarationError, match="Annotate it as Snapshot"):
        resolve(pipeline)


def test_a_table_is_no_snapshot() -> None:
    pipeline = small()

    @pipeline.table
    def rows(raw: Stream) -> object:
        return raw

    @pipeline.table
    def more(raw: Stream, rows: Snapshot) -> object:
        return rows

    with pytest.raises(DeclarationError, match="only references are"):
        resolve(pipeline)


def test_a_name_is_taken_once() -> None:
    pipeline = small()
    with pytest.raises(DeclarationError, match=r"'raw' is already used at .*test_declare.py:\d+"):
        pipeline.source("raw", Files("elsewhere/", schema=SCHEMA))


def test_a_key_that_no_column_of_the_source_has_is_left_to_the_step() -> None:
    pipeline = small()

    @pipeline.table(key="made", content_ignores="too")
    def rows(raw: Stream) -> object:
        return raw

    @pipeline.table(key=["id", "at"])
    def others(raw: Stream) -> object:
        return raw

    plan = resolve(pipeline)
    assert [makes_key(pipeline, table) for table in plan.tables] == [True, False]


def test_a_parameter_without_annotation_is_refused() -> None:
    pipeline = small()
    with pytest.raises(DeclarationError, match="Annotate it as Stream"):

        @pipeline.table
        def rows(raw) -> object:  # type: ignore[no-untyped-def]
            return raw


def test_a_view_reads_no_sources() -> None:
    pipeline = small()
    pipeline.view("totals", "select * from raw")
    with pytest.raises(
        DeclarationError, match="reads 'raw', which is not a summary, table or reference"
    ):
        resolve(pipeline)


@pytest.mark.parametrize("sql", ["drop table x", "select 1; select 2"])
def test_a_view_is_one_select(sql: str) -> None:
    pipeline = small()
    pipeline.view("totals", sql)
    with pytest.raises(DeclarationError, match="must be one SELECT"):
        resolve(pipeline)


def test_a_summary_with_a_time_needs_its_width() -> None:
    pipeline = small()

    @pipeline.table
    def rows(raw: Stream) -> object:
        return raw

    @pipeline.summary(key="day", time="day")
    def totals(rows: Stream) -> object:
        return rows

    with pytest.raises(DeclarationError, match="needs both time and width"):
        resolve(pipeline)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("15 minutes", timedelta(minutes=15)),
        ("1 hour", timedelta(hours=1)),
        ("500 milliseconds", timedelta(milliseconds=500)),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize("text", ["", "15", "0 minutes", "-1 hour", "1 month", "soon"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match="is not a duration"):
        parse_duration(text)


def test_a_schema_keeps_nested_types_and_normalises_simple_ones() -> None:
    fields = parse_schema("a LONG, b decimal( 18 , 6 ), c array<struct<x:int,y:string>>")
    assert [(f.name, f.type) for f in fields] == [
        ("a", "bigint"),
        ("b", "decimal(18,6)"),
        ("c", "array<struct<x:int,y:string>>"),
    ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("a strin", "has the unknown type 'strin'"),
        ("a int, A int", "twice"),
        ("_a int", "are reserved"),
        ("a decimal(40,2)", "decimal"),
        ("", "is empty"),
        ("a", "cannot read 'a'"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(schema: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        parse_schema(schema)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key_optional": True}, "key_optional without a key"),
        ({"content_ignores": ["id"]}, "content_ignores without a key"),
        ({"key": "id", "content_ignores": "idd"}, r"content_ignores 'idd'.*Did you mean 'id'"),
    ],
)
def test_options_of_identity_must_make_sense(options: Any, words: str) -> None:
    pipeline = small()

    @pipeline.table(**options)
    def rows(raw: Stream) -> object:
        return raw

    with pytest.raises(DeclarationError, match=words):
        resolve(pipeline)
