"""Options of formats through the real engine: the same rows, however a file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tapeline import Csv, Files, Kafka, Pipeline, Stream
from tapeline.testing import Trial

ROW = "id string, amount decimal(10,2), note string"


def declare() -> Pipeline:
    pipeline = Pipeline("as_people_have_them")
    for name, said in {
        "bare": Csv(header=False, nulls=("NA", "null")),
        "semicolons": Csv(separator=";", quote="'"),
        "tabs": Csv(separator="\t", quote=None),
    }.items():
        pipeline.source(f"raw_{name}", Files(f"{name}/", format=said, schema=ROW))
    pipeline.source(
        "raw_message", Kafka("m", format=Csv(separator="|"), schema=ROW, new_fields="keep")
    )

    @pipeline.table(key="id")
    def bare(raw_bare: Stream) -> DataFrame:
        return raw_bare

    @pipeline.table(key="id")
    def semicolons(raw_semicolons: Stream) -> DataFrame:
        return raw_semicolons

    @pipeline.table(key="id")
    def tabs(raw_tabs: Stream) -> DataFrame:
        return raw_tabs

    @pipeline.table(key="id")
    def message(raw_message: Stream) -> DataFrame:
        return raw_message

    return pipeline


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[Trial]:
    with Trial(declare(), tmp_path_factory.mktemp("people")) as trial:
        yield trial


def rows(trial: Trial, table: str) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["amount"], row["note"]) for row in trial.read(table))


def reasons(trial: Trial, table: str) -> list[list[str]]:
    return [row["_reasons"] for row in trial.quarantine(table)]


def test_csv_without_a_header_has_the_declared_columns_and_null_words(trial: Trial) -> None:
    trial.feed(raw_bare=["a,1.50,NA", "b,null,", 'c,2,"NA, really"', "d,3", "e,4,x,y"])
    assert rows(trial, "bare") == [
        ("a", Decimal("1.50"), None),
        ("b", None, None),
        ("c", Decimal(2), "NA, really"),
    ]
    assert (
        reasons(trial, "bare")
        == [["the row has another number of columns than 3, or a broken quote"]] * 2
    )


def test_csv_with_semicolons_and_single_quotes(trial: Trial) -> None:
    lines = ["x,y;1.50;a", "'it''s; so';1.50;b", 'said "q";0;c']
    trial.feed("note;amount;id", raw_semicolons=lines)
    assert rows(trial, "semicolons") == [
        ("a", Decimal("1.50"), "x,y"),
        ("b", Decimal("1.50"), "it's; so"),
        ("c", Decimal(0), 'said "q"'),
    ]


def test_csv_with_tabs_and_without_quotes(trial: Trial) -> None:
    lines = ['a\t1.50\t"half', "b\t\t", 'c\t2\t"a\\"b"', "d\t3\tx\ty"]
    trial.feed("id\tamount\tnote", raw_tabs=lines)
    assert rows(trial, "tabs") == [
        ("a", Decimal("1.50"), '"half'),
        ("b", None, None),
        ("c", Decimal(2), '"a\\"b"'),
    ]
    assert reasons(trial, "tabs") == [
        ["the row has another number of columns than the header, or a broken quote"]
    ]


def test_a_csv_message_may_have_another_separator(trial: Trial) -> None:
    trial.feed(raw_message=["a|1.50|x|new", "b|2"])
    assert rows(trial, "message") == [("a", Decimal("1.50"), "x")]
    assert trial.read("message")[0]["new_fields"] == '{"column_4":"new"}'
    assert reasons(trial, "message") == [
        ["the message has another number of columns than 3, or a broken quote"]
    ]
