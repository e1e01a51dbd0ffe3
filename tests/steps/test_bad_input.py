"""Bad input is quarantined with every reason, the raw record and its position; the rest goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tapeline import Files, Pipeline, Stream, expect_or_quarantine
from tapeline.testing import Trial, unbalanced

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = (
    "id string, at timestamp, amount decimal(10,4), size int, day date, rate double, ok boolean"
)
GOOD = {"id": "g", "at": "2026-11-13T10:00:00Z", "amount": "12.3456"}


def declare(**said: Any) -> Pipeline:
    pipeline = Pipeline("inputs")
    pipeline.source("raw", Files("landing/", schema=SCHEMA, **said))

    @pipeline.table(key="id", time="at")
    @expect_or_quarantine("id is present", "id is not null")
    @expect_or_quarantine("amount is present and not negative", "amount >= 0")
    def rows(raw: Stream) -> DataFrame:
        return raw

    return pipeline


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Trial:
    return Trial(declare(), tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def trial(tmp_path: Path, prepared: Trial) -> Trial:
    return Trial(declare(), tmp_path, like=prepared)


CASES: list[tuple[Any, str]] = [
    ("not json", "the record is not a JSON object"),
    ("[1, 2]", "the record is not a JSON object"),
    ('{"id": "x", ', "the record is not a JSON object"),
    (b'{"id": "\xff\xfe"}', "the record is not UTF-8"),
    ({**GOOD, "amount": "1.23456"}, "amount has more than 4 decimals"),
    ({**GOOD, "amount": 1.23456}, "amount has more than 4 decimals"),
    ({**GOOD, "amount": "12345678"}, "amount is too large for decimal(10,4)"),
    ({**GOOD, "amount": "NaN"}, "amount is not a plain decimal number"),
    ('{"id": "x", "at": "2026-11-13T10:00:00Z", "amount": NaN}', "amount is not a plain"),
    ({**GOOD, "amount": "1e5"}, "amount is not a plain decimal number"),
    ({**GOOD, "amount": "1,5"}, "amount is not a plain decimal number"),
    ({**GOOD, "amount": "٣"}, "amount is not a plain decimal number"),
    ({**GOOD, "amount": {"value": 1}}, "amount is not a plain decimal number"),
    ({**GOOD, "amount": "-1"}, "amount is present and not negative"),
    ({"id": "x", "at": "2026-11-13T10:00:00Z"}, "amount is present and not negative"),
    ({"at": "2026-11-13T10:00:00Z", "amount": "1"}, "id is present"),
    ({**GOOD, "at": "13.11.2026"}, "at is not a timestamp"),
    ({**GOOD, "at": "2026-02-30T10:00:00Z"}, "at is not a timestamp"),
    ({**GOOD, "at": 1762000000}, "at is not a timestamp"),
    ({**GOOD, "at": "2026-11-13T10:00:00.1234567Z"}, "at is not a timestamp"),
    ({**GOOD, "at": "2036-11-13T10:00:00Z"}, "at is more than 5 minutes in the future"),
    ({**GOOD, "size": "3.5"}, "size is not an integer"),
    ({**GOOD, "size": "3000000000"}, "size is not an integer"),
    ({**GOOD, "day": "2026-13-01"}, "day is not a date"),
    ({**GOOD, "rate": "Infinity"}, "rate is not a finite number"),
    ({**GOOD, "rate": "1e400"}, "rate is not a finite number"),
    ({**GOOD, "ok": "perhaps"}, "ok is not true or false"),
]


def test_every_kind_of_bad_record_is_quarantined_with_its_reason(trial: Trial) -> None:
    trial.feed(raw=[GOOD, *[record for record, _ in CASES], {**GOOD, "id": "last"}])
    assert trial.verdicts("rows") == {"kept": 2, "quarantined": len(CASES)}
    found = {row["_position"]["at"]: row for row in trial.quarantine("rows")}
    for place, (_, reason) in enumerate(CASES, start=1):
        row = found[place]
        assert any(reason in said for said in row["_reasons"]), (place, reason, row["_reasons"])
        assert row["_position"]["source"] == "raw"
        assert row["_raw"]


def test_a_record_names_all_its_faults(trial: Trial) -> None:
    trial.feed(raw=[{"id": "x", "at": "soon", "amount": "1.23456", "size": "many"}])
    (row,) = trial.quarantine("rows")
    assert {"at is not a timestamp", "amount has more than 4 decimals"} <= set(row["_reasons"])
    assert row["_raw"] == b'{"id": "x", "at": "soon", "amount": "1.23456", "size": "many"}'


def test_an_unreadable_record_has_one_reason_only(trial: Trial) -> None:
    trial.feed(raw=["not json"])
    (row,) = trial.quarantine("rows")
    assert row["_reasons"] == ["the record is not a JSON object"]


def test_numbers_come_through_exactly(trial: Trial) -> None:
    amounts = ["0.0001", "999999.9999", 12.5, "007.50", "3.1000000", "+1", "-0"]
    trial.feed(raw=[{**GOOD, "id": str(i), "amount": a} for i, a in enumerate(amounts)])
    rows = sorted(trial.read("rows"), key=lambda row: row["id"])
    expected = ["0.0001", "999999.9999", "12.5", "7.5", "3.1", "1", "0"]
    assert [row["amount"] for row in rows] == [Decimal(text) for text in expected]


def test_numbers_without_quotes_come_through_exactly(tmp_path: Path) -> None:
    """Spark would make doubles of them: 17 digits, and an exponent from ten million on."""
    found = Pipeline("unquoted")
    found.source("raw", Files("landing/", schema="id string, money decimal(38,16), name string"))

    @found.table(key="id")
    def rows(raw: Stream) -> DataFrame:
        return raw

    trial = Trial(found, tmp_path)
    numbers = ["1234567890123456789012.1234567890123456", "100000000.12", "0.00001", "1.5e3",
               "-0.1234567890123456", "9007199254740993.5", "12.5", "-7", "1e-999999999",
               "0.12345678901234567"]  # fmt: skip
    lines = [f'{{"id": "{n}", "money": {one}, "name": "{one}"}}' for n, one in enumerate(numbers)]
    trial.feed(raw=lines)
    assert trial.verdicts("rows") == {"kept": 7, "quarantined": 3}
    for row in trial.read("rows"):
        assert row["money"] == Decimal(numbers[int(row["id"])])
        assert row["name"] == numbers[int(row["id"])]
    assert [row["_reasons"] for row in trial.quarantine("rows")] == [
        ["money is not a plain decimal number"],
        ["money is not a plain decimal number"],
        ["money has more than 16 decimals"],
    ]


def test_times_keep_their_zone_and_without_one_are_utc(trial: Trial) -> None:
    times = ["2026-11-13T10:00:00+02:00", "2026-11-13 10:00", "2026-11-13T10:00:00.000001Z"]
    trial.feed(raw=[{**GOOD, "id": str(i), "at": t} for i, t in enumerate(times)])
    rows = sorted(trial.read("rows"), key=lambda row: row["id"])
    assert [row["at"].astimezone(UTC) for row in rows] == [
        datetime(2026, 11, 13, 8, tzinfo=UTC),
        datetime(2026, 11, 13, 10, tzinfo=UTC),
        datetime(2026, 11, 13, 10, 0, 0, 1, tzinfo=UTC),
    ]


def test_a_local_time_that_exists_twice_or_never_is_quarantined(tmp_path: Path) -> None:
    trial = Trial(declare(zone="America/New_York"), tmp_path)
    trial.feed(
        raw=[
            {**GOOD, "id": "1", "at": "2026-03-08 02:30"},  # the clock skips it
            {**GOOD, "id": "2", "at": "2025-11-02 01:30"},  # it comes twice
            {**GOOD, "id": "3", "at": "2026-11-13 10:00"},
            {**GOOD, "id": "4", "at": "2026-11-13T10:00:00Z"},
        ]
    )
    assert trial.verdicts("rows") == {"kept": 2, "quarantined": 2}
    rows = sorted(trial.read("rows"), key=lambda row: row["id"])
    assert [row["at"].astimezone(UTC).hour for row in rows] == [15, 10]


def test_a_conflicting_repeat_waits_and_the_first_stands(trial: Trial) -> None:
    trial.feed(raw=[GOOD])
    trial.feed(raw=[{**GOOD, "amount": "99"}, GOOD, {**GOOD, "at": "2026-11-13T09:00:00Z"}])
    assert trial.verdicts("rows") == {"kept": 1, "quarantined": 1, "duplicate": 2}
    (row,) = trial.quarantine("rows")
    assert row["_reasons"] == ["the same key was kept before with other content"]
    assert [row["amount"] for row in trial.read("rows")] == [Decimal("12.3456")]


CSV_SCHEMA = "id string, amount decimal(10,4), note string"


def csv_pipeline() -> Pipeline:
    pipeline = Pipeline("inputs")
    pipeline.source("raw", Files("landing/", format="csv", schema=CSV_SCHEMA))

    @pipeline.table(key="id")
    def rows(raw: Stream) -> DataFrame:
        return raw

    return pipeline


@pytest.fixture(scope="module")
def prepared_csv(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Trial:
    return Trial(csv_pipeline(), tmp_path_factory.mktemp("prepared"))


def test_csv_columns_go_by_the_header_of_their_own_file(
    tmp_path: Path, prepared_csv: Trial
) -> None:
    trial = Trial(csv_pipeline(), tmp_path, like=prepared_csv)
    trial.feed("id,amount,note", raw=['1,2.50,"a, quoted ""note"""'])
    trial.feed("Note,extra, AMOUNT ,id", raw=["plain,x,3,2"])
    rows = sorted(trial.read("rows"), key=lambda row: row["id"])
    assert [(r["id"], r["amount"], r["note"]) for r in rows] == [
        ("1", Decimal("2.5"), 'a, quoted "note"'),
        ("2", Decimal(3), "plain"),
    ]


def test_csv_rows_of_another_shape_are_quarantined(tmp_path: Path, prepared_csv: Trial) -> None:
    trial = Trial(csv_pipeline(), tmp_path, like=prepared_csv)
    rows = ["1,2", "1,2,x,y", '1,2,"broken', "1,2,fine", "2,,"]
    trial.feed("id,amount,note", raw=rows)
    assert trial.verdicts("rows") == {"kept": 2, "quarantined": 3}
    trial.feed("id,note", raw=["7,no amount column"])
    reasons = [row["_reasons"] for row in trial.quarantine("rows")]
    assert ["the file has no column 'amount'"] in reasons


def test_the_column_names_of_a_spreadsheet_are_columns(tmp_path: Path) -> None:
    pipeline = Pipeline("sheet")
    schema = "`Order No` string, `Sold, at` timestamp, `Größe (EUR)` decimal(12,2)"
    pipeline.source("raw", Files("landing/", format="csv", schema=schema))

    @pipeline.table(key="Order No", time="Sold, at")
    @expect_or_quarantine("Größe is above zero", "`Größe (EUR)` > 0")
    def rows(raw: Stream) -> DataFrame:
        return raw

    trial = Trial(pipeline, tmp_path)
    header = 'Order No,"Sold, at",Größe (EUR)'
    trial.feed(header, raw=["A-1,2026-03-02 08:05,1.50", "A-1,2026-03-02 08:05,1.50"])
    trial.feed(header, raw=["A-2,2026-03-02 08:06,-1", "A-3,2026-03-02 08:07,x"])
    assert trial.verdicts("rows") == {"kept": 1, "duplicate": 1, "quarantined": 2}
    (kept,) = trial.read("rows")
    assert (kept["Order No"], kept["Größe (EUR)"]) == ("A-1", Decimal("1.50"))
    assert unbalanced(trial.books) == []
