"""The one place that builds a Spark session."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tapeline.errors import OperationError
from tapeline.java import find_jar, refuse_wrong_jars
from tapeline.settings import Settings

# Spark generates one method per stage; Java leaves methods over 8,000 bytes uncompiled unless told
# otherwise, and a step of fifty expressions then runs several times slower. On few cores the
# parallel collector leaves them more time than Java's default. And a JVM without memory ends: half
# alive it would hold the lock and do nothing.
JAVA = "-XX:-DontCompileHugeMethods -XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError"
# What each is for stands in docs/operate.md; the measurements behind them in benchmarks/.
TUNING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A prepared plan is executed again for every batch: it must not be re-planned as it runs.
    "spark.sql.adaptive.enabled": "false",
    # Arrow rows become a leaf that can be exchanged, not a relation folded into the plan.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # Steps name their own file and line: Spark need not look at the stack of every expression.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.liveUpdate.period": "-1",
    # A batch's tasks are small and never leave the machine.
    "spark.broadcast.compress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.cleaner.referenceTracking.blocking": "false",
}
SPARK_ERRORS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
BARE_FILE_SYSTEM = "hadoop-bare-naked-local-fs"
# What a session can be asked to know beside files, and the jars that brings. Nobody who needs
# only files waits for them.
Connector = Literal["avro", "kafka"]
CONNECTORS: dict[Connector, tuple[str, ...]] = {
    "avro": ("spark-avro_",),
    "kafka": (
        "spark-sql-kafka-0-10_",
        "spark-token-provider-kafka-0-10_",
        "kafka-clients-",
        "commons-pool2-",
        "scala-parallel-collections_",
    ),
}


def build_session(
    settings: Settings, name: str = "tapeline", connectors: Iterable[Connector] = ()
) -> SparkSession:
    """Start Spark on loopback with the jars that set-up fetched."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Its log4j2.properties keeps the terminal free of what is not an error.
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
    builder: Any = SparkSession.builder.master(settings.spark.master).appName(name)
    cores = "".join(c for c in settings.spark.master if c.isdigit()) or "2"
    options = {
        **TUNING,
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.sql.shuffle.partitions": cores,
    }
    jars = _connector_jars(connectors)
    bare = find_jar(BARE_FILE_SYSTEM)
    if bare is not None:
        options["spark.hadoop.fs.file.impl"] = (
            "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
        )
    # Driver and executor are one JVM here; spark.jars would be copied at every start.
    path = [str(jar) for jar in (bare, *jars) if jar is not None]
    options["spark.driver.extraClassPath"] = os.pathsep.join(path)
    for key, value in options.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise OperationError(
            f"Spark did not start: {error}. It needs Java 17: run 'make setup', which says how."
        ) from error
    _refuse_without(session, jars)
    # PySpark prints a wrong column name as pages of JSON; our message says the same in a line.
    for logger in SPARK_ERRORS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler cancels the jobs of the batch at work: Ctrl-C waits for its end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return session


def _connector_jars(connectors: Iterable[Connector]) -> list[Path]:
    """The jars that these need, found and compared with what was pinned."""
    prefixes = [prefix for one in connectors for prefix in CONNECTORS[one]]
    found = {prefix: find_jar(prefix) for prefix in prefixes}
    missing = [prefix.rstrip("_-") for prefix, jar in found.items() if jar is None]
    if missing:
        raise OperationError(f"jars are missing: {', '.join(missing)}. Run 'make setup'.")
    jars = [jar for jar in found.values() if jar is not None]
    for jar in jars:
        refuse_wrong_jars(jar.parent, [jar.name])
    return jars


def _refuse_without(session: SparkSession, jars: list[Path]) -> None:
    """A JVM takes its jars when it starts: one that runs already may lack them."""
    if not jars:
        return
    jvm: Any = session.sparkContext._jvm
    known = jvm.java.lang.System.getProperty("java.class.path").split(os.pathsep)
    lacking = [jar.name for jar in jars if str(jar) not in known]
    if lacking:
        raise OperationError(
            f"this process started Spark before it needed {', '.join(lacking)}. "
            "Ask for all connectors at the first start, or use another process."
        )
