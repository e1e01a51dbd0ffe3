"""What is wrong with a pipeline and can be known without Spark is refused without it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapeline import (
    Console,
    DeclarationError,
    Each,
    Files,
    Pipeline,
    Rows,
    Snapshot,
    Stream,
    expect_or_quarantine,
)
from tapeline.plan import load_pipeline, resolve
from tapeline.settings import Settings


def shop() -> Pipeline:
    pipeline = Pipeline("shop")
    pipeline.source("raw_sales", Files("drop/", schema="id string, money decimal(12,2)"))

    @pipeline.table(key="id")
    def sales(raw_sales: Stream) -> Any:
        return raw_sales

    return pipeline


def test_a_misspelt_option_of_a_table_is_named() -> None:
    with pytest.raises(DeclarationError, match=r"no option 'keys'\. Did you mean 'key'"):
        shop().table(keys="id")  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="Write table\\(key='id'\\)"):
        shop().table("id")  # type: ignore[call-overload]


def test_an_expectation_above_the_table_is_refused() -> None:
    pipeline = shop()
    with pytest.raises(DeclarationError, match=r"'x is there' of more.* above @pipeline.table"):

        @expect_or_quarantine("x is there", "x is not null")
        @pipeline.table
        def more(sales: Stream) -> Any:
            return sales


def test_an_expectation_of_a_summary_is_refused() -> None:
    pipeline = shop()
    with pytest.raises(DeclarationError, match="belong to tables"):

        @pipeline.summary(key="id")
        @expect_or_quarantine("x is there", "x is not null")
        def totals(sales: Stream) -> Any:
            return sales


def test_an_alert_needs_no_parentheses_and_a_sink_a_destination() -> None:
    pipeline = shop()

    @pipeline.alert
    def large(sales: Each) -> bool:
        return bool(sales["money"] > 10)

    assert resolve(pipeline).pipeline.alerts["large"].severity == "warning"
    with pytest.raises(DeclarationError, match=r"sent\(\) has @pipeline.sink without"):

        @pipeline.sink
        def sent(sales: Rows) -> Rows:
            return sales

    @pipeline.sink(Console())
    def printed(sales: Rows) -> Rows:
        return sales

    assert resolve(pipeline).pipeline.sinks.keys() == {"printed"}


def two_streams(pipeline: Pipeline) -> None:
    @pipeline.table
    def both(sales: Stream, raw_sales: Stream) -> Any:
        return sales


def a_table_beside_a_stream(pipeline: Pipeline) -> None:
    @pipeline.table
    def both(raw_sales: Stream, sales: Snapshot) -> Any:
        return raw_sales


def repeats(pipeline: Pipeline) -> None:
    @pipeline.table
    def once(sales: Stream) -> Any:
        return sales.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id", "money"])


def groups(pipeline: Pipeline) -> None:
    @pipeline.table
    def grouped(sales: Stream) -> Any:
        return sales.groupBy("id").count()


def state(pipeline: Pipeline) -> None:
    @pipeline.summary(key="id")
    def stateful(sales: Stream) -> Any:
        return sales.groupBy("id").applyInPandasWithState(print, "id string", "n int", "append")


def sessions(pipeline: Pipeline) -> None:
    @pipeline.summary(key="start")
    def visits(sales: Stream) -> Any:
        from pyspark.sql import functions as F

        return sales.groupBy(F.session_window("at", "5 minutes").start.alias("start")).count()


def of_a_source(pipeline: Pipeline) -> None:
    @pipeline.summary(key="id")
    def totals(raw_sales: Stream) -> Any:
        return raw_sales.groupBy("id").count()


def far_source(pipeline: Pipeline) -> None:
    pipeline.source("far", Files("s3a://bucket/drop", schema="id string"))


def far_reference(pipeline: Pipeline) -> None:
    pipeline.reference("far", Files("hdfs://host/facts.csv"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (two_streams, r"reads 2 Streams \(sales, raw_sales\).*pipeline.reference.*view"),
        (a_table_beside_a_stream, r"as a Snapshot.*cannot join two streams.*pipeline.reference"),
        (repeats, r'(?s)uses dropDuplicatesWithinWatermark.*key=\["id", "money"\].*sales: Stream'),
        (groups, r'(?s)uses groupBy.*@pipeline.summary\(key="id"\).*grouped_totals'),
        (state, "uses applyInPandasWithState, a function of your own with state"),
        (sessions, "session_window.*F.window"),
        (of_a_source, "reads the source 'raw_sales'. A summary reads a table"),
        (far_source, "'far' has the path 's3a://bucket/drop'"),
        (far_reference, "'far' has the path 'hdfs://host/facts.csv'"),
    ],
)
def test_refused_with_what_to_write_instead(wrong: Callable[[Pipeline], None], words: str) -> None:
    pipeline = shop()
    wrong(pipeline)
    with pytest.raises(DeclarationError, match=words) as refused:
        resolve(pipeline)
    assert "test_early_refusals.py:" in str(refused.value)


def test_a_second_load_in_one_process_gets_its_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_the_shop.py").write_text(
        'from tapeline import option\nWIDTH = option("shop.width", "1 hour")\n'
    )
    (tmp_path / "pipeline.py").write_text(
        "from of_the_shop import WIDTH\nfrom tapeline import Pipeline\n"
        'pipeline = Pipeline("shop", final_after=WIDTH)\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = [
        load_pipeline("pipeline.py", Settings(project=tmp_path, pipeline={"shop": options}))
        for options in ({"width": "2 hours"}, {"width": "3 hours"}, {})
    ]
    sys.modules.pop("of_the_shop")
    assert [one.final_after for one in found] == ["2 hours", "3 hours", "1 hour"]


def test_a_second_load_keeps_the_classes_of_modules_that_only_offer_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading such a module again would make objects that are not equal to the first ones."""
    (tmp_path / "widths_of_the_shop.py").write_text(
        "from tapeline import option\nclass Width:\n    pass\n"
        'def chosen():\n    return option("shop.width", "1 hour")\n'
    )
    (tmp_path / "pipeline.py").write_text(
        "from widths_of_the_shop import Width, chosen\nfrom tapeline import Pipeline\n"
        'pipeline = Pipeline("shop", final_after=chosen())\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    classes, widths = set(), []
    for options in ({"width": "2 hours"}, {"width": "3 hours"}):
        settings = Settings(project=tmp_path, pipeline={"shop": options})
        widths.append(load_pipeline("pipeline.py", settings).final_after)
        classes.add(sys.modules["widths_of_the_shop"].Width)
    sys.modules.pop("widths_of_the_shop")
    assert (widths, len(classes)) == (["2 hours", "3 hours"], 1)
