"""Options of formats through the real engine: the same rows, however a file writes them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tapeline import Csv, Files, Json, Kafka, Pipeline, Stream
from tapeline.testing import Trial

ROW = "id string, amount decimal(10,2), note string"


def declare() -> Pipeline:
    pipeline = Pipeline("as_people_have_them")
    for name, said in {
        "bare": Csv(header=False, nulls=("NA", "null")),
        "semicolons": Csv(separator=";", quote="'"),
        "tabs": Csv(separator="\t", quote=None),
        "lists": Json(document=True, positional=True),
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

    numbers = "id string, amount decimal(38,10), near double, parts array<decimal(38,20)>"
    pipeline.source("raw_numbers", Files("numbers/", schema=numbers))
    listed = Json(positional=True)
    pipeline.source("raw_more", Files("more/", format=listed, schema=ROW, new_fields="keep"))

    @pipeline.table(key="id")
    def lists(raw_lists: Stream) -> DataFrame:
        return raw_lists

    @pipeline.table(key="id")
    def more(raw_more: Stream) -> DataFrame:
        return raw_more

    @pipeline.table(key="id")
    def numbers_of(raw_numbers: Stream) -> DataFrame:
        return raw_numbers

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


def test_the_values_of_a_json_list_are_the_declared_columns(trial: Trial) -> None:
    records = [
        '["a", 1.50, "x"]',
        '[\n  "b",\n  "0.25",\n  null\n]',
        '["exact", 12345678.90, 0.1000000000000000055511151231257827]',
        '[7, 2, {"k": [1.10]}]',
        '["short", 1]',
        '["long", 1, "x", 9]',
        '{"id": "named"}',
        '["broken", 1',
        '["small", 1e-1, "x"]',
        "null",
    ]
    trial.feed(raw_lists=records, raw_more=records)
    kept = [
        ("7", Decimal(2), '{"k":[1.10]}'),
        ("a", Decimal("1.50"), "x"),
        ("b", Decimal("0.25"), None),
        ("exact", Decimal("12345678.90"), "0.1000000000000000055511151231257827"),
    ]
    assert rows(trial, "lists") == kept
    count = "the record has another number of values than 3"
    assert reasons(trial, "lists") == [
        [count],
        [count],
        ["the record is not a JSON list"],
        ["the record is not a JSON list"],
        ["amount is not a plain decimal number"],
        ["the record is not a JSON list"],
    ]
    assert rows(trial, "more") == [*kept, ("long", Decimal(1), "x")]
    more = {row["id"]: row["new_fields"] for row in trial.read("more")}
    assert more == dict.fromkeys("7ab") | {"exact": None, "long": '{"column_4":"9"}'}


def test_json_numbers_keep_every_digit(trial: Trial) -> None:
    trial.feed(
        raw_numbers=[
            '{"id": "large", "amount": 12345678.90, "near": 1.5e-7}',
            '{"id": "small", "amount": 0.0005, "near": 12345678.9}',
            '{"id": "long", "amount": 1234567890123456789012345678.0123456789}',
            '{"id": "list", "amount": 1234567.1234567891, "parts": [0.10000000000000000555, 7]}',
            '{"id": "rounded", "amount": 1234567.12345678914}',
            '{"id": 1.50, "amount": 2}',
        ]
    )
    found = {
        row["id"]: (row["amount"], row["near"], row["parts"]) for row in trial.read("numbers_of")
    }
    assert found == {
        "large": (Decimal("12345678.90"), 1.5e-7, None),
        "small": (Decimal("0.0005"), 12345678.9, None),
        "long": (Decimal("1234567890123456789012345678.0123456789"), None, None),
        "list": (Decimal("1234567.1234567891"), None, [Decimal("0.10000000000000000555"), 7]),
        "1.50": (Decimal(2), None, None),
    }
    assert reasons(trial, "numbers_of") == [["amount has more than 10 decimals"]]
