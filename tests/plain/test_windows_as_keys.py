"""A window as a key is read from the function's own source: its start and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream
from tapeline.declare.windows import windows_in


def unnamed(sales: Stream) -> Any:
    return sales.groupBy(F.window("at", "1 hour"), "id").count()


def aliased(sales: Stream) -> Any:
    return sales.groupBy(F.window("at", "1 hour").alias("w"), "id").count()


def kept_in_a_variable(sales: Stream) -> Any:
    hour = F.window("at", "1 hour")
    return sales.groupBy(hour).count()


def made_into_columns(sales: Stream) -> Any:
    rows = sales.withColumn("w", F.window("at", "1 hour"))
    return rows.withColumns({"v": F.window("at", "1 day")}).groupBy("w", "v").count()


def its_start(sales: Stream) -> Any:
    return sales.groupBy(F.window("at", "1 hour").start.alias("window")).count()


def its_start_by_name(sales: Stream) -> Any:
    return sales.groupBy(F.window("at", "1 hour")["start"].alias("w")).count()


def start_of_a_variable(sales: Stream) -> Any:
    hour = F.window("at", "1 hour")
    return sales.groupBy(hour.start.alias("window")).count()


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (unnamed, {"window"}),
        (aliased, {"w"}),
        (kept_in_a_variable, {"window"}),
        (made_into_columns, {"w", "v"}),
        (its_start, set()),
        (its_start_by_name, set()),
        (start_of_a_variable, set()),
        (len, set()),
    ],
)
def test_the_windows_of_a_function(function: Callable[..., Any], names: set[str]) -> None:
    assert windows_in(function) == names


def test_a_window_in_a_key_is_its_start_and_end_and_the_time_its_start() -> None:
    pipeline = Pipeline("shop")
    pipeline.source("raw", Files("drop/", schema="id string, at timestamp"))

    @pipeline.table
    def sales(raw: Stream) -> Any:
        return raw

    pipeline.summary(key=["w", "id"], time="w", width="1 hour")(aliased)
    found = pipeline.summaries["aliased"]
    assert found.key == ("w_start", "w_end", "id")
    assert found.time == "w_start"


def test_a_key_of_an_earlier_version_means_what_it_meant() -> None:
    pipeline = Pipeline("shop")
    pipeline.summary(key="window", time="window", width="1 hour")(start_of_a_variable)
    found = pipeline.summaries["start_of_a_variable"]
    assert (found.key, found.time) == (("window",), "window")
