"""The one place that builds a Spark session."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tapeline.errors import OperationError
from tapeline.java import OLDEST_JAVA
from tapeline.settings import Settings
from tapeline.spark.conf import SESSION, spark_conf
from tapeline.spark.internals import class_path, jvm_runs
from tapeline.spark.jvm import (
    Connector,
    bare_file_system,
    connector_jars,
    found_java,
    launch_of,
)
from tapeline.spark.launch import start_gateway, starts_here

SPARK_ERRORS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def build_session(
    settings: Settings,
    name: str = "tapeline",
    connectors: Iterable[Connector] = (),
    short: bool = False,
    make_archive: Path | None = None,
) -> SparkSession:
    """Start Spark on loopback with the jars that set-up fetched.

    `short` is for a few seconds of work. With `make_archive` the JVM writes the classes that it has
    loaded into this file when it ends.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # PySpark would look for bin/spark-submit beside the current folder first, and run it.
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = spark_conf(settings)
    options = {
        **conf.plain,
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.sql.shuffle.partitions": _cores(settings.spark.master),
    }
    connectors = list(connectors)
    _refuse_without_secret(settings, conf.secret)
    jars = connector_jars(connectors)
    # Executors of a cluster do not have this jar.
    bare = bare_file_system() if settings.spark.master.startswith("local") else []
    if bare:
        options["spark.hadoop.fs.file.impl"] = (
            "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
        )
    # Driver and executor are one JVM here; spark.jars would be copied at every start.
    options["spark.driver.extraClassPath"] = os.pathsep.join(map(str, [*bare, *jars]))
    builder: Any = SparkSession.builder.master(settings.spark.master).appName(name)
    try:
        if not jvm_runs():
            if starts_here(settings.spark.master):
                launch = launch_of(settings, connectors, short, make_archive)
                SparkContext._ensure_initialized(gateway=start_gateway(launch))
            else:
                _start_by_scripts(options)
        for key, value in {**options, **conf.secret}.items():
            builder = builder.config(key, value)
        session: SparkSession = builder.getOrCreate()
    except OperationError:
        raise
    except Exception as error:
        raise OperationError(
            f"Spark did not start: {error}. Spark needs Java {OLDEST_JAVA} or newer; 'tapeline "
            "doctor' says what was found."
        ) from error
    _refuse_without(session, jars)
    # PySpark prints a wrong column name as pages of JSON; our message says the same in a line.
    for logger in SPARK_ERRORS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)  # of a query's batch
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler cancels the jobs of the batch at work: Ctrl-C waits for its end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return session


def tuned(session: SparkSession) -> SparkSession:
    """A session beside a user's own, with the SQL settings that the engine needs; or this one."""
    if all(session.conf.get(key) == value for key, value in SESSION.items()):
        return session
    own: SparkSession = session.newSession()
    for key, value in SESSION.items():
        own.conf.set(key, value)
    return own


def _start_by_scripts(options: dict[str, str]) -> None:
    """Start the JVM as Spark's scripts do, with nothing secret on its command line."""
    found_java()
    # Its log4j2.properties keeps the terminal free of what is not an error.
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "log4j"))
    public = SparkConf(loadDefaults=False).setAll(list(options.items()))
    SparkContext._ensure_initialized(conf=public)


def _refuse_without_secret(settings: Settings, secret: dict[str, str]) -> None:
    """Driver and executors of a standalone cluster know each other by a secret."""
    if settings.spark.master.startswith("spark:") and "spark.authenticate.secret" not in secret:
        raise OperationError(
            f"the cluster {settings.spark.master} needs a secret. Give master and workers one in "
            "'spark.authenticate.secret', and write in tapeline.toml, section [spark.conf]: "
            "'spark.authenticate.secret' = 'env:NAME_OF_THE_VARIABLE'."
        )


def _cores(master: str) -> str:
    """The cores of a local master; a cluster's are not in its address."""
    found = re.match(r"local\[(\d+)", master)
    return found[1] if found else "2"


def _refuse_without(session: SparkSession, jars: list[Path]) -> None:
    """A JVM takes its jars when it starts: one that runs already may lack them."""
    if not jars:
        return
    known = class_path(session).split(os.pathsep)
    lacking = [jar.name for jar in jars if str(jar) not in known]
    if lacking:
        raise OperationError(
            f"this process started Spark without {', '.join(lacking)}. Name all connectors at the "
            "first start, or use another process."
        )
