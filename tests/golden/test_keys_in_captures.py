"""A real capture, its ids inside lines of text or inside messages of many trades, sent twice."""

from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream
from tapeline.books.audit import audit
from tapeline.testing import Trial

pytestmark = pytest.mark.usefixtures("spark")
TRADE = "struct<at:timestamp,s:string,t:bigint,p:decimal(18,8),q:decimal(18,8),m:boolean>"
KEYED = {"key": ["s", "t"], "content_ignores": ["seen"], "future_after": "1 hour"}


def captured(fixtures: Path) -> list[dict[str, Any]]:
    with gzip.open(fixtures / "binance_live_capture" / "trades.csv.gz", "rt") as file:
        return [
            {
                "at": row["event_time_utc"],
                "s": row["symbol"],
                "t": int(row["trade_id"]),
                "p": row["price"],
                "q": row["qty"],
                "m": row["side"] == "SELL",
            }
            for row in csv.DictReader(file)
        ]


def sums(pipeline: Pipeline) -> None:
    @pipeline.summary(key="m")
    def totals(trades: Stream) -> DataFrame:
        value = (F.col("p") * F.col("q")).cast("decimal(38,16)")
        return trades.groupBy("m").agg(F.sum(value).alias("value"), F.count("*").alias("n"))


def in_lines() -> Pipeline:
    pipeline = Pipeline("capture_lines")
    pipeline.source("raw", Files("landing/", format="text"))

    @pipeline.table(**KEYED)
    def trades(raw: Stream) -> DataFrame:
        parts = F.split("value", " ", 2)
        data = F.from_json(parts[1], TRADE).alias("d")
        found = raw.select("_position", parts[0].alias("seen"), data)
        return found.select("_position", "seen", "d.*")

    sums(pipeline)
    return pipeline


def in_messages() -> Pipeline:
    pipeline = Pipeline("capture_messages")
    pipeline.source("raw", Files("landing/", schema=f"seen bigint, data array<{TRADE}>"))

    @pipeline.table(**KEYED)
    def trades(raw: Stream) -> DataFrame:
        each = raw.select("_position", "seen", F.explode("data").alias("d"))
        return each.select("_position", "seen", "d.*")

    sums(pipeline)
    return pipeline


@pytest.mark.parametrize("pipeline", [in_lines, in_messages])
def test_a_capture_that_comes_twice_gives_the_known_answer(
    pipeline: Any, fixtures: Path, tmp_path: Path
) -> None:
    chance = Random(14)
    sent = captured(fixtures) * 2
    chance.shuffle(sent)
    records: list[Any]
    if pipeline is in_lines:
        records = [f"{1723161256419684465 + n} {json.dumps(one)}" for n, one in enumerate(sent)]
    else:
        records = [{"seen": n, "data": sent[n : n + 40]} for n in range(0, len(sent), 40)]
    trial = Trial(pipeline(), tmp_path)
    bounds = sorted(chance.sample(range(1, len(records)), 4))
    for first, last in zip([0, *bounds], [*bounds, len(records)], strict=True):
        trial.feed(raw=records[first:last])
    text = (fixtures / "binance_live_capture" / "golden.csv").read_text(encoding="utf-8")
    golden = list(csv.DictReader(text.splitlines()))
    found = {row["m"]: row["value"] for row in trial.read("totals")}
    assert found[False] == sum(Decimal(row["total_buy"]) for row in golden)
    assert found[True] == sum(Decimal(row["total_sell"]) for row in golden)
    count = sum(int(row["trade_count"]) for row in golden)
    assert trial.verdicts("trades") == {"kept": count, "duplicate": count}
    assert all(check.balances for check in audit(trial.books, full=True))
