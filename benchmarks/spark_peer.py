"""What the Spark peers share: the session, plain or tuned, and the steps from a line to a sum."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import sums
from tapeline.java import compared_jars, named_jar
from tapeline.spark.conf import TUNING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELTA_JARS = (
    "delta-spark_4.2_2.13-4.4.0.jar",
    "delta-storage-4.4.0.jar",
    "scala-parallel-collections_2.13-1.2.0.jar",
)
KAFKA_JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
BARE_FILESYSTEM_JAR = "hadoop-bare-naked-local-fs-0.1.0.jar"

STREAMING = "org.apache.spark.sql.execution.streaming"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
STATE_IN_MEMORY = {STATE_STORE: f"{STREAMING}.state.HDFSBackedStateStoreProvider"}

LINE = ", ".join(f"{name} string" for name in (*sums.LINE_FIELDS, "_corrupt"))

TRADE = (
    "trade_id string, traded_at timestamp, side string, instrument string, "
    "quantity decimal(18,6), price decimal(18,8), currency string, client string, "
    "terminal string, fees decimal(20,4), arrived_at timestamp"
)
SUM = (
    "window_start timestamp, terminal string, currency string, "
    "total_buy decimal(38,4), total_sell decimal(38,4), trades bigint"
)

# What makes a line a good trade; a line that breaks one of them is left out.
RULES = (
    "_corrupt is null",
    "length(trade_id) between 1 and 64",
    "version is null or try_cast(version as int) >= 1",
    "event is null or event = 'NEW'",
    "try_cast(traded_at as timestamp) <= arrived_at + interval 1 day",
    "upper(side) in ('BUY', 'SELL')",
    "instrument is not null",
    "quantity rlike '^[0-9]{1,12}([.][0-9]{1,6})?$' and cast(quantity as decimal(18,6)) > 0",
    "price rlike '^[0-9]{1,10}([.][0-9]{1,8})?$' and cast(price as decimal(18,8)) > 0",
    # Spark reads a byte that is no UTF-8 as the replacement character.
    "length(client) > 0 and not contains(client, '\ufffd')",
    "upper(terminal) in ('DESKTOP', 'WEB', 'MOBILE')",
    "fees is null or fees rlike '^[0-9]{1,16}([.][0-9]{1,4})?$'",
)

AMOUNT = """
    cast(case minor_units
        when 0 then round(quantity * price, 0)
        when 2 then round(quantity * price, 2)
        when 3 then round(quantity * price, 3)
    end as decimal(28,4))
"""


def session(name: str, work: Path, tuned: bool, **more: str) -> SparkSession:
    """A session on this machine. Plain: Spark's defaults, with Delta on the loopback address.

    `work` takes what Spark writes aside: blocks, state, a warehouse. `more` settings come last.
    """
    # Otherwise the driver binds to, and advertises, the machine's own name.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    work.mkdir(parents=True, exist_ok=True)
    settings = _plain(work) | (_tuned() if tuned else {}) | more
    builder = SparkSession.builder.appName(name).master("local[*]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def _plain(work: Path) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, compared_jars(DELTA_JARS))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "blocks"),
    }


def _tuned() -> dict[str, str]:
    """What an expert sets for small batches on one machine: stack.md's settings, and more.

    The JVM runs with the options of our own sessions.

    Besides: a query that waits for its Delta table asks for news every 10 ms by default, and the
    two that wait take a core from the one that works; and a checkpoint of a Delta log, by default
    at every tenth commit, takes longer than the nine commits before it.
    """
    rocksdb = "spark.sql.streaming.stateStore.rocksdb"
    return {
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": TUNING["spark.driver.extraJavaOptions"],
        "spark.driver.extraClassPath": str(compared_jars([BARE_FILESYSTEM_JAR])[0]),
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(len(os.sched_getaffinity(0))),
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        STATE_STORE: f"{STREAMING}.state.RocksDBStateStoreProvider",
        f"{rocksdb}.changelogCheckpointing.enabled": "true",
        f"{rocksdb}.trackTotalNumberOfRows": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.properties.defaults.checkpointInterval": "100",
        "spark.sql.streaming.pollingDelay": "100ms",
    }


def lines_of(reader: object, drop: Path) -> DataFrame:
    """The lines of a drop folder, through `spark.read` or `spark.readStream`."""
    options = {"columnNameOfCorruptRecord": "_corrupt", "pathGlobFilter": "*.jsonl"}
    return reader.schema(LINE).options(**options).json(str(drop))  # type: ignore[attr-defined]


def connector_jars() -> dict[str, str]:
    """The setting that adds Spark's own connector to the jars of Delta."""
    jars = compared_jars([*DELTA_JARS, *map(named_jar, KAFKA_JARS)])
    return {"spark.jars": ",".join(map(str, jars))}


def lines_of_topic(reader: Any, brokers: str | None, topic: str) -> DataFrame:
    """The lines of a topic, decoded as those of a file."""
    from pyspark.sql import functions as F

    places = {"kafka.bootstrap.servers": brokers, "subscribe": topic, "startingOffsets": "earliest"}
    decoded = F.from_json(
        F.col("value").cast("string"), LINE, {"columnNameOfCorruptRecord": "_corrupt"}
    )
    messages: DataFrame = reader.format("kafka").options(**places).load()
    return messages.select(decoded.alias("line")).select("line.*")


def good_trades(lines: DataFrame, currencies: list[str]) -> DataFrame:
    """The typed trades of those lines that keep all rules; repeats included."""
    from pyspark.sql import functions as F

    known = F.col("currency").isNull() | F.col("currency").isin(currencies)
    return (
        lines.where(" and ".join(f"({rule})" for rule in RULES))
        .where(known)
        .selectExpr(
            "trade_id",
            "cast(traded_at as timestamp) as traded_at",
            "upper(side) as side",
            "instrument",
            "cast(quantity as decimal(18,6)) as quantity",
            "cast(price as decimal(18,8)) as price",
            "currency",
            "client",
            "upper(terminal) as terminal",
            "cast(coalesce(fees, '0') as decimal(20,4)) as fees",
            "arrived_at",
        )
    )


def window_sums(trades: DataFrame, reference: Reference) -> DataFrame:
    """Money bought and sold in each quarter of an hour, by terminal and currency."""
    from pyspark.sql import functions as F

    instruments, currencies = F.broadcast(reference.instruments), F.broadcast(reference.currencies)
    amounts = (
        trades.join(instruments, "instrument")
        .withColumn("currency", F.coalesce("currency", "instrument_currency"))
        .join(currencies, "currency")
        .withColumn("amount", F.expr(AMOUNT))
    )
    return (
        amounts.groupBy(F.window("traded_at", "15 minutes").alias("window"), "terminal", "currency")
        .agg(
            F.expr("sum(if(side = 'BUY', amount, 0.0000BD))").alias("total_buy"),
            F.expr("sum(if(side = 'SELL', amount, 0.0000BD))").alias("total_sell"),
            F.count("*").alias("trades"),
        )
        .selectExpr("window.start as window_start", "* except (window)")
    )


class Reference:
    """The reference tables, held in memory: they are read once, not in every batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        read = spark.read.option("header", "true")
        self.instruments = (
            read.csv(str(folder / "instruments.csv"))
            .selectExpr("instrument", "currency as instrument_currency")
            .coalesce(1)
            .cache()
        )
        self.currencies = (
            read.schema("currency string, minor_units int")
            .csv(str(folder / "currencies.csv"))
            .coalesce(1)
            .cache()
        )
        self.instruments.count()
        self.currency_codes = [one.currency for one in self.currencies.collect()]
