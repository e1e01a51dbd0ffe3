"""Settings of Spark's own, as a project says them: which pass, and which would break the engine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from tapeline.errors import DeclarationError
from tapeline.settings import Settings

# docs/operate.md says what each is for, benchmarks/ has the measurements.
# Spark generates one method per stage; Java leaves methods over 8,000 bytes uncompiled unless told
# otherwise, and a step of fifty expressions then runs several times slower. On few cores the
# parallel collector leaves them more time than Java's default. And a JVM without memory ends: half
# alive it would hold the lock and do nothing.
JAVA = "-XX:-DontCompileHugeMethods -XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError"
TUNING = {
    "spark.sql.session.timeZone": "UTC",
    # What does not fit its type is an error and not a null, which a sum would pass over.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
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
    # The driver and its block manager listen on loopback, which other users of the machine reach.
    # In local mode Spark makes up a secret that never leaves its memory.
    "spark.authenticate": "true",
    # Hadoop gives files and folders a mode of its own, whatever the umask of the process is.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.cleaner.referenceTracking.blocking": "false",
}
# What a session that somebody else started must have, so that steps mean the same there.
SESSION = {
    key: TUNING[key]
    for key in (
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "spark.sql.adaptive.enabled",
        "spark.sql.execution.arrow.localRelationThreshold",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
    )
} | {"spark.sql.caseSensitive": "false"}  # Spark's default, which a session may have changed
# These a cluster needs otherwise.
CHANGEABLE = {
    "spark.broadcast.compress",
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.hadoop.fs.permissions.umask-mode",
}
# These follow other settings, or say which code the JVM loads: only compared jars are.
OURS = {
    "spark.app.name": "the pipeline's name",
    "spark.driver.extraClassPath": "the jars of jars.sha256",
    "spark.driver.memory": "the setting spark.driver_memory",
    "spark.hadoop.fs.file.impl": "the jars of jars.sha256",
    "spark.master": "the setting spark.master",
    "spark.sql.shuffle.partitions": "the setting spark.master",
    "spark.ui.enabled": "the setting spark.ui",
    "spark.ui.port": "the setting spark.ui_port",
}
CODE = ("spark.jars", "spark.plugins", "spark.extraListeners", "spark.sql.extensions",
        "spark.sql.catalog", "spark.driver.userClassPathFirst", "spark.submit.pyFiles",
        "spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions",
        "spark.driver.extraLibraryPath", "spark.executor.extraLibraryPath")  # fmt: skip
SECRET = re.compile(r"secret|password|token|credential|access\.?key", re.IGNORECASE)
NOT_SECRET = re.compile(r"\.(file|path|provider|enabled|length|bits)$|BitLength$", re.IGNORECASE)
FROM_ENVIRONMENT = "env:"


class SparkConf(NamedTuple):
    """What Spark is told: what anybody may see, and what must not be on a command line."""

    plain: dict[str, str]
    secret: dict[str, str]


def spark_conf(settings: Settings, environment: Mapping[str, str] | None = None) -> SparkConf:
    """The engine's own settings and those of [spark.conf]. Refuses what cannot be meant."""
    variables = os.environ if environment is None else environment
    refuse_conf(settings)
    plain, secret = {**TUNING, **_ui(settings)}, {}
    for key, value in settings.spark.conf.items():
        if value.startswith(FROM_ENVIRONMENT):
            secret[key] = _from(variables, value.removeprefix(FROM_ENVIRONMENT), key)
        else:
            plain[key] = value
    return SparkConf(plain, secret)


def refuse_conf(settings: Settings) -> None:
    """Refuse what [spark.conf] must not say; needs neither Spark nor the secrets."""
    for key, value in settings.spark.conf.items():
        _refuse(key, value)
        open_secret = SECRET.search(key) and not NOT_SECRET.search(key)
        if open_secret and not value.startswith(FROM_ENVIRONMENT):
            raise DeclarationError(
                f"[spark.conf] '{key}' contains a secret. Put it into an environment variable and "
                f"write '{key}' = 'env:NAME_OF_THE_VARIABLE'."
            )


def _ui(settings: Settings) -> dict[str, str]:
    """Spark's UI, which listens where SPARK_LOCAL_IP says: the session makes that loopback."""
    if not settings.spark.ui:
        return {}
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(settings.spark.ui_port),
        "spark.ui.killEnabled": "false",  # it asks nobody for a password
        "spark.ui.liveUpdate.period": "100ms",
    }


def _refuse(key: str, value: str) -> None:
    if not key.startswith("spark."):
        raise DeclarationError(
            f"[spark.conf] '{key}' is not a Spark setting: these start with 'spark.'."
        )
    if key in OURS:
        raise DeclarationError(f"[spark.conf] '{key}' cannot be set: it comes from {OURS[key]}.")
    if any(key == name or key.startswith(f"{name}.") for name in CODE):
        raise DeclarationError(
            f"[spark.conf] '{key}' cannot be set: it lets Spark load unverified code."
        )
    if key in TUNING and key not in CHANGEABLE and value != TUNING[key]:
        raise DeclarationError(
            f"[spark.conf] '{key}' cannot be set to '{value}': Tapeline needs '{TUNING[key]}'."
        )


def _from(variables: Mapping[str, str], name: str, key: str) -> str:
    if not variables.get(name):
        raise DeclarationError(
            f"the environment variable {name} is not set. [spark.conf] '{key}' needs it."
        )
    return variables[name]
