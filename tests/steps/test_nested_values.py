"""Values inside lists, structs and maps are read as strictly as those of a record itself."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream
from tapeline.testing import Trial

pytestmark = pytest.mark.usefixtures("spark")
LEG = "struct<id:string, money:decimal(12,2), n:int, at:timestamp, day:date, ok:boolean, x:double>"
SCHEMA = (
    f"id string, legs array<{LEG}>, one {LEG}, prices map<string,decimal(38,16)>, "
    "words array<string>"
)
SOUND = {
    "id": "l1", "money": "12.50", "n": 7, "at": "2026-11-13T10:00:00.000001Z",
    "day": "2026-11-13", "ok": True, "x": 1.5,
}  # fmt: skip


def declare(zone: str = "UTC") -> Pipeline:
    pipeline = Pipeline("nested")
    pipeline.source("raw", Files("landing/", schema=SCHEMA, zone=zone))

    @pipeline.table(key="id")
    def rows(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key="id")
    def totals(rows: Stream) -> DataFrame:
        return rows.groupBy("id").agg(F.count("*").alias("n"))

    return pipeline


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Trial:
    return Trial(declare(), tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def trial(tmp_path: Path, prepared: Trial) -> Trial:
    return Trial(declare(), tmp_path, like=prepared)


def test_sound_values_come_through_exactly(trial: Trial) -> None:
    long = "1234567890123456789012.1234567890123456"
    record = {
        "id": "a", "legs": [SOUND, None, {}], "one": SOUND, "words": ["x", None, 1.50],
        "prices": {"p": long, "q": 2, "r": None},
    }  # fmt: skip
    trial.feed(raw=[record, {"id": "b", "legs": None, "one": None}, {"id": "c"}])
    found = {row["id"]: row for row in trial.read("rows")}
    leg = {
        "id": "l1", "money": Decimal("12.50"), "n": 7, "day": date(2026, 11, 13), "ok": True,
        "at": datetime(2026, 11, 13, 10, 0, 0, 1, tzinfo=UTC), "x": 1.5,
    }  # fmt: skip
    assert found["a"]["legs"] == [leg, None, dict.fromkeys(leg)]
    assert found["a"]["one"] == leg
    assert dict(found["a"]["prices"]) == {"p": Decimal(long), "q": Decimal(2), "r": None}
    assert found["a"]["words"] == ["x", None, "1.5"]
    for name in "bc":
        assert [found[name][c] for c in ("legs", "one", "prices", "words")] == [None] * 4


CASES: list[tuple[dict[str, Any], str]] = [
    ({"legs": [SOUND, {"money": 1.239}]}, "legs.money is not a decimal(12,2)"),
    ({"legs": [{"money": "12345678901.00"}]}, "legs.money is not a decimal(12,2)"),
    ({"one": {"money": "1.005"}}, "one.money is not a decimal(12,2)"),
    ({"prices": {"p": 1, "q": "0.00000000000000001"}}, "prices is not a decimal(38,16)"),
    ({"legs": [{"n": 3_000_000_000}]}, "legs.n is not an integer"),
    ({"legs": [{"n": 1.5}]}, "legs.n is not an integer"),
    ({"one": {"at": "13.11.2026"}}, "one.at is not a timestamp"),
    ({"one": {"day": "2026-02-30"}}, "one.day is not a date"),
    ({"one": {"ok": "perhaps"}}, "one.ok is not true or false"),
    ({"one": {"x": "1e400"}}, "one.x is not a finite number"),
    ({"legs": [1, 2]}, "legs is not an array<"),
    ({"legs": {"money": "1"}}, "legs is not an array<"),
    ({"legs": "no list"}, "legs is not an array<"),
    ({"one": "no struct"}, "one is not a struct<"),
    ({"one": [1]}, "one is not a struct<"),
    ({"prices": [1]}, "prices is not a map<"),
]
# To read such a number takes Spark minutes, and all memory.
BOMBS = ["1e-999999999", '"1e-999999999"', "1e999999999", '"1e999999999"', "1e-99999999"]


def test_what_does_not_fit_is_quarantined_with_its_path_and_never_rounded(trial: Trial) -> None:
    bombs = [f'{{"id": "b{n}", "legs": [{{"money": {text}}}]}}' for n, text in enumerate(BOMBS)]
    records = [json.dumps({"id": str(n), **said}) for n, (said, _) in enumerate(CASES)]
    trial.feed(raw=[*records, *bombs, {"id": "good", "legs": [SOUND]}])
    assert trial.verdicts("rows") == {"kept": 1, "quarantined": len(CASES) + len(BOMBS)}
    found = {row["_position"]["at"]: row["_reasons"] for row in trial.quarantine("rows")}
    wanted = [reason for _, reason in CASES] + ["legs.money is not a decimal(12,2)"] * len(BOMBS)
    for place, reason in enumerate(wanted):
        (said,) = found[place]
        assert said.startswith(reason), place


def test_times_inside_are_of_the_source_s_zone(tmp_path: Path) -> None:
    trial = Trial(declare("Europe/Berlin"), tmp_path)
    trial.feed(raw=[{"id": "a", "one": {"at": "2026-11-13 10:00"}}])
    (row,) = trial.read("rows")
    assert row["one"]["at"] == datetime(2026, 11, 13, 9, tzinfo=UTC)
