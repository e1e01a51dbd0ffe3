"""Public data sets as they come: no adapter, only what `Files(...)` says of them."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tapeline import Csv, Files, Json, Pipeline, Stream
from tapeline.settings import Settings
from tapeline.testing import Deployment

pytestmark = pytest.mark.usefixtures("spark")
SUMS = ("total_buy", "total_sell", "total_value", "total_qty", "trade_count")
VALUE = "decimal(28,16)"


def booked(pipeline: Pipeline, folder: Path, *files: Path) -> Deployment:
    """The whole way of some files: drop folder, intake, tape, flow."""
    (folder / "drop").mkdir()
    for file in files:
        shutil.copy(file, folder / "drop" / f".{file.name}")
        (folder / "drop" / f".{file.name}").rename(folder / "drop" / file.name)
    here = Deployment(pipeline, Settings(project=folder, root=folder / "books"))
    here.run_once()
    assert here.unbalanced() == []
    return here


def known(path: Path, *names: str, by: str | None = None) -> dict[Any, list[Decimal]]:
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {_key(row, by): [Decimal(row[name] or 0) for name in names] for row in rows}


def _key(row: dict[str, str], by: str | None) -> Any:
    start = datetime.fromisoformat(row["window_start_utc"])
    return (start, row[by]) if by else start


def found(here: Deployment, *names: str, by: str | None = None) -> dict[Any, list[Decimal]]:
    return {
        (row["window_start"], row[by]) if by else row["window_start"]: [
            Decimal(row[name]) for name in names
        ]
        for row in here.read("windows")
    }


def summed(trades: DataFrame, *by: str) -> DataFrame:
    """Trades with `at`, `side`, `price` and `qty`, in windows of 15 minutes."""
    value = (F.col("price") * F.col("qty")).cast(VALUE)

    def of(side: str) -> Column:
        return F.sum(F.when(F.col("side") == side, value).otherwise(0).cast(VALUE))

    start = F.window("at", "15 minutes").start.alias("window_start")
    return trades.groupBy(start, *by).agg(
        of("buy").alias("total_buy"),
        of("sell").alias("total_sell"),
        F.sum(value).alias("total_value"),
        F.sum("qty").alias("total_qty"),
        F.count("*").alias("trade_count"),
    )


def add_windows(pipeline: Pipeline) -> Pipeline:
    @pipeline.summary(key="window_start", time="window_start", width="15 minutes")
    def windows(trades: Stream) -> DataFrame:
        return summed(trades)

    return pipeline


def gold() -> Pipeline:
    """Zip archives of CSV without a header; day and expiry are only in the names of members."""
    pipeline = Pipeline("gold")
    schema = (
        "ms bigint, price decimal(18,8), qty decimal(18,8), exchange string, condition string, "
        "suspicious string"
    )
    pipeline.source("raw", Files("drop/", format=Csv(header=False), schema=schema, meta=True))

    @pipeline.table(time="at")
    def trades(raw: Stream) -> DataFrame:
        name = F.split("file.name", "_")
        midnight = F.unix_millis(F.to_timestamp(name[0], "yyyyMMdd"))
        return raw.withColumns(
            {
                "at": F.timestamp_millis(midnight + F.col("ms")),
                "symbol": F.concat(F.lit("GC"), F.substring(name[4], 1, 6)),
                "side": F.lit("none"),
            }
        ).drop("file")

    @pipeline.summary(key=["window_start", "symbol"], time="window_start", width="15 minutes")
    def windows(trades: Stream) -> DataFrame:
        return summed(trades, "symbol")

    return pipeline


def test_gold_futures_come_in_zip_archives_whose_names_matter(
    tmp_path: Path, fixtures: Path
) -> None:
    folder = fixtures / "lean_gold_ticks"
    here = booked(gold(), tmp_path, folder / "gc_20131007_trade.zip")
    names = ("total_value", "total_qty", "trade_count")
    expected = known(folder / "golden_by_symbol_20131007.csv", *names, by="symbol")
    assert found(here, *names, by="symbol") == expected


def retail() -> Pipeline:
    pipeline = Pipeline("retail")
    schema = (
        "InvoiceNo string, StockCode string, Description string, Quantity bigint, "
        "InvoiceDate timestamp, UnitPrice decimal(18,4), CustomerID string, Country string"
    )
    pipeline.source("raw", Files("drop/", format="csv", schema=schema))

    @pipeline.table(time="InvoiceDate")
    def sales(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key="window_start", time="window_start", width="1 day")
    def windows(sales: Stream) -> DataFrame:
        value = (F.col("Quantity") * F.col("UnitPrice")).cast(VALUE)
        start = F.window("InvoiceDate", "1 day").start.alias("window_start")
        return sales.groupBy(start).agg(
            F.sum(value).alias("total_value"),
            F.sum("Quantity").alias("total_qty"),
            F.count("*").alias("line_count"),
        )

    return pipeline


def test_retail_comes_as_csv_with_quoted_commas(tmp_path: Path, fixtures: Path) -> None:
    folder, names = fixtures / "retail_by_day", ("total_value", "total_qty", "line_count")
    here = booked(retail(), tmp_path, folder / "2010-12-22.csv")
    assert found(here, *names) == known(folder / "golden_1day.csv", *names)


def xrp_lists() -> Pipeline:
    """One JSON list of lists."""
    pipeline = Pipeline("xrp_lists")
    schema = (
        "ms bigint, id string, kind string, side string, price decimal(18,8), qty decimal(18,8), "
        "cost string"
    )
    said = Json(document=True, positional=True)
    pipeline.source("raw", Files("drop/", format=said, schema=schema))

    @pipeline.table(key="id", time="at")
    def trades(raw: Stream) -> DataFrame:
        return raw.withColumns({"at": F.timestamp_millis("ms")})

    return add_windows(pipeline)


def xrp_objects() -> Pipeline:
    """One JSON list of objects."""
    pipeline = Pipeline("xrp_objects")
    schema = "datetime timestamp, id string, side string, price decimal(18,8), amount decimal(18,8)"
    pipeline.source("raw", Files("drop/", format=Json(document=True), schema=schema))

    @pipeline.table(key="id", time="at")
    def trades(raw: Stream) -> DataFrame:
        return raw.withColumnsRenamed({"datetime": "at", "amount": "qty"})

    return add_windows(pipeline)


def kraken() -> Pipeline:
    """A JSON document with its list two levels down."""
    pipeline = Pipeline("kraken")
    schema = (
        "price decimal(18,8), qty decimal(18,8), seconds decimal(20,7), letter string, "
        "kind string, misc string, id bigint"
    )
    said = Json(records="result.XBTUSDT", positional=True)
    pipeline.source("raw", Files("drop/", format=said, schema=schema))

    @pipeline.table(key="id", time="at")
    def trades(raw: Stream) -> DataFrame:
        micros = (F.col("seconds") * 1_000_000).cast("bigint")
        side = F.when(F.col("letter") == "b", "buy").otherwise("sell")
        return raw.withColumns({"at": F.timestamp_micros(micros), "side": side})

    return add_windows(pipeline)


@pytest.mark.parametrize(
    ("pipeline", "name", "file"),
    [
        (xrp_lists, "freqtrade_binance_xrp", "XRP_ETH-trades.json.gz"),
        (xrp_objects, "freqtrade_binance_xrp", "XRP_OLD-trades.json.gz"),
        (kraken, "kraken_xbtusdt_rest", "http_trades.json"),
    ],
)
def test_trades_come_as_json_documents(
    pipeline: Callable[[], Pipeline], name: str, file: str, tmp_path: Path, shared: Path
) -> None:
    here = booked(pipeline(), tmp_path, shared / name / "raw" / file)
    assert found(here, *SUMS) == known(shared / name / "golden.csv", *SUMS)


def parks() -> Pipeline:
    """CSV of an old Mac: its lines end with CR alone, and its letters are not UTF-8."""
    pipeline = Pipeline("parks")
    schema = "`Area ID` string, `Park ID` string, Date string, `Park Conditions` string"
    said = Csv(encoding="mac_roman")
    pipeline.source("raw", Files("drop/", format=said, schema=schema))

    @pipeline.table(key=["Park ID"])
    def visits(raw: Stream) -> DataFrame:
        return raw

    return pipeline


def test_parks_come_from_an_old_mac(tmp_path: Path, shared: Path) -> None:
    file = shared / "squirrel" / "park-data.csv"
    here = booked(parks(), tmp_path, file)
    text = file.read_bytes().decode("mac_roman").replace("\r", "\n")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 25
    assert {(row["Park ID"], row["Park Conditions"]) for row in here.read("visits")} == {
        (row["Park ID"], row["Park Conditions"] or None) for row in rows
    }


def sensors() -> Pipeline:
    pipeline = Pipeline("sensors")
    schema = "Index bigint, Creation_Time bigint, User string, gt string, x double"
    pipeline.source("raw", Files("drop/", schema=schema))

    @pipeline.table(key="Index", time="at")
    def readings(raw: Stream) -> DataFrame:
        micros = F.expr("Creation_Time div 1000")
        return raw.withColumns({"at": F.timestamp_micros(micros)})

    @pipeline.summary(key="window_start", time="window_start", width="10 seconds")
    def windows(readings: Stream) -> DataFrame:
        start = F.window("at", "10 seconds").start.alias("window_start")
        return readings.groupBy(start).agg(F.count("*").alias("count"))

    return pipeline


def test_sensors_come_as_json_lines(tmp_path: Path, shared: Path) -> None:
    here = booked(sensors(), tmp_path, shared / "hhar" / "rdavilao_phones_accelerometer.jsonl")
    expected = known(shared / "hhar" / "golden_10s.csv", "count", by="file")
    phones = {at: row for (at, file), row in expected.items() if file == "Phones_accelerometer"}
    assert found(here, "count") == phones


def fills() -> Pipeline:
    """FIX logs of several systems in one folder: which one it was is only in the file's name."""
    pipeline = Pipeline("fills")
    pipeline.source("raw", Files("drop/", format="fix", fix_checks="warn", meta=True))

    @pipeline.table(time="traded_at")
    def trades(raw: Stream) -> DataFrame:
        sent = raw.filter("action = 'NEW'").withColumns({"log": F.col("file.name")})
        return sent.drop("file")

    @pipeline.summary(key=["window_start", "log"], time="window_start", width="15 minutes")
    def windows(trades: Stream) -> DataFrame:
        value = (F.col("price") * F.col("quantity")).cast(VALUE)
        start = F.window("traded_at", "15 minutes").start.alias("window_start")
        buys = F.when(F.col("side") == "BUY", value).otherwise(0).cast(VALUE)
        return trades.groupBy(start, "log").agg(
            F.sum(buys).alias("total_buy"), F.count("*").alias("fill_count")
        )

    return pipeline


def test_fills_of_several_logs_are_told_apart_by_the_names_of_their_files(
    tmp_path: Path, shared: Path
) -> None:
    folder, names = shared / "fix_logs", ("total_buy", "fill_count")
    logs = [*folder.glob("*.log"), *folder.glob("*.body"), *folder.glob("*.dat")]
    here = booked(fills(), tmp_path, *logs)
    assert found(here, *names, by="log") == known(folder / "golden.csv", *names, by="log")


def cards() -> Pipeline:
    pipeline = Pipeline("cards")
    schema = "transaction_id bigint, tx_datetime timestamp, tx_amount decimal(18,2), tx_fraud int"
    pipeline.source("raw", Files("drop/", format="csv", schema=schema))

    @pipeline.table(key="transaction_id", time="tx_datetime")
    def payments(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key="window_start", time="window_start", width="15 minutes")
    def windows(payments: Stream) -> DataFrame:
        start = F.window("tx_datetime", "15 minutes").start.alias("window_start")
        return payments.groupBy(start).agg(
            F.sum("tx_amount").alias("total_amount"),
            F.count("*").alias("tx_count"),
            F.sum("tx_fraud").alias("fraud_count"),
        )

    return pipeline


@pytest.mark.slow
def test_card_payments_come_as_compressed_csv(tmp_path: Path, shared: Path) -> None:
    folder, names = shared / "card_transactions", ("total_amount", "tx_count", "fraud_count")
    here = booked(cards(), tmp_path, folder / "transactions_2018-04.csv.gz")
    assert found(here, *names) == known(folder / "golden_15min_2018-04.csv", *names)


def capture() -> Pipeline:
    """A capture as it was recorded: a time, a space, a message; the market is in the name."""
    pipeline = Pipeline("capture")
    pipeline.source("raw", Files("drop/", format="text", meta=True))

    @pipeline.table(time="at")
    def trades(raw: Stream) -> DataFrame:
        message = F.split("value", " ", 2)[1]
        data = F.from_json(
            message, "stream string, data struct<T:bigint,p:string,q:string,m:boolean>"
        )
        parsed = raw.filter(message.contains('@trade"')).withColumns({"d": data})
        number = "decimal(18,8)"
        return parsed.select(
            "_position",
            F.col("file.name").alias("name"),
            F.timestamp_millis("d.data.T").alias("at"),
            F.col("d.data.p").cast(number).alias("price"),
            F.col("d.data.q").cast(number).alias("qty"),
            F.when(F.col("d.data.m"), "sell").otherwise("buy").alias("side"),
        )

    return add_windows(pipeline)


@pytest.mark.slow
def test_a_capture_of_three_markets_comes_as_it_was_recorded(tmp_path: Path, shared: Path) -> None:
    folder = shared / "binance_live_capture"
    here = booked(capture(), tmp_path, *(folder / "raw").glob("*.gz"))
    assert found(here, *SUMS) == known(folder / "golden.csv", *SUMS)
    assert {row["name"][:4] for row in here.read("trades")} == {"spot", "cm_b", "cm_e"}
    assert here.read("trades")[0]["at"] > datetime(2024, 8, 8, tzinfo=UTC)


def cars() -> Pipeline:
    pipeline = Pipeline("cars")
    schema = "timestamp timestamp, driver_id bigint, event_type string, location string"
    pipeline.source("raw", Files("drop/", schema=schema))

    @pipeline.table(time="timestamp")
    def events(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key=["hour", "event_type"], time="hour", width="1 hour")
    def windows(events: Stream) -> DataFrame:
        hour = F.window("timestamp", "1 hour").start.alias("hour")
        return events.groupBy(hour, "event_type").agg(F.count("*").alias("count"))

    return pipeline


def test_the_cars_of_arroyo_come_as_json_lines(tmp_path: Path, shared: Path) -> None:
    folder = shared / "conformance" / "arroyo"
    here = booked(cars(), tmp_path, folder / "input_cars.jsonl")
    text = (folder / "expected_hourly_by_event_type.jsonl").read_text(encoding="utf-8")
    expected = {
        (datetime.fromisoformat(row["hour"]).replace(tzinfo=UTC), row["event_type"]): row["count"]
        for row in map(json.loads, text.splitlines())
    }
    rows = here.read("windows")
    assert {(row["hour"], row["event_type"]): row["count"] for row in rows} == expected


def bids() -> Pipeline:
    pipeline = Pipeline("bids")
    schema = "auction bigint, price bigint, date_time timestamp"
    pipeline.source("raw", Files("drop/", format="csv", schema=schema))

    @pipeline.table
    def offers(raw: Stream) -> DataFrame:
        return raw

    @pipeline.summary(key=["day", "auction"], time="day", width="1 day")
    def windows(offers: Stream) -> DataFrame:
        day = F.window("date_time", "1 day").start.alias("day")
        sums = F.count("*").alias("bids"), F.sum("price").alias("total")
        return offers.groupBy(day, "auction").agg(*sums)

    return pipeline


def test_the_bids_of_nexmark_come_as_csv(tmp_path: Path, shared: Path) -> None:
    """Query 17: bids per auction and day. The file has columns that nobody declared."""
    folder = shared / "conformance" / "risingwave"
    here = booked(bids(), tmp_path, folder / "nexmark_bid.csv")
    lines = (folder / "expected_q17.txt").read_text(encoding="utf-8").splitlines()
    cells = [line.split() for line in lines if line.strip()]
    expected = {(one[1], int(one[0])): (int(one[2]), int(one[-1])) for one in cells}
    assert {
        (f"{row['day']:%Y-%m-%d}", row["auction"]): (row["bids"], row["total"])
        for row in here.read("windows")
    } == expected


def invoices() -> Pipeline:
    """Nested invoices: a row for each line item."""
    pipeline = Pipeline("invoices")
    schema = "InvoiceNumber string, InvoiceLineItems array<struct<TotalValue:decimal(18,2)>>"
    pipeline.source("raw", Files("drop/", schema=schema))

    @pipeline.table
    def items(raw: Stream) -> DataFrame:
        return raw.withColumn("item", F.explode("InvoiceLineItems")).drop("InvoiceLineItems")

    @pipeline.summary(key="everything")
    def totals(items: Stream) -> DataFrame:
        sums = F.count("*").alias("items"), F.sum("item.TotalValue").alias("value")
        return items.groupBy(F.lit("all").alias("everything")).agg(*sums)

    return pipeline


def test_invoices_of_the_course_come_as_nested_json(tmp_path: Path, shared: Path) -> None:
    folder = shared / "learningjournal"
    files = (folder / "02-FileStreamDemo" / "SampleData").glob("*.json")
    here = booked(invoices(), tmp_path, *files)
    course = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["02-FileStreamDemo"]
    (row,) = here.read("totals")
    assert row["items"] == course["total_line_items"]
    assert row["value"] == Decimal(str(course["total_value"]))
