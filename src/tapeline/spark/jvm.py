"""What the JVM of a session is started with: which Java, options, jars and archive of classes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tapeline.errors import OperationError
from tapeline.java import (
    OLDEST_JAVA,
    compared_jars,
    has_jar,
    java_command,
    java_version,
    named_jar,
)
from tapeline.settings import Settings
from tapeline.spark.class_archive import archive_of, to_make, to_use
from tapeline.spark.conf import JAVA
from tapeline.spark.launch import Launch, java_options, start_ahead, starts_here

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
# The first of Java's two compilers alone: a few seconds of work need a third less processor time.
# Code that runs long would be slower with it (how much was not measured).
SHORT_WORK = "-XX:TieredStopAtLevel=1"


def connector_jars(connectors: Iterable[Connector]) -> list[Path]:
    """The jars that these need, found and compared with what was pinned."""
    prefixes = [prefix for one in connectors for prefix in CONNECTORS[one]]
    return compared_jars(dict.fromkeys(map(named_jar, prefixes))) if prefixes else []


def bare_file_system() -> list[Path]:
    """Hadoop's own local file system does without this jar, more slowly."""
    name = named_jar(BARE_FILE_SYSTEM)
    return compared_jars([name]) if has_jar(name) else []


def found_java() -> tuple[str, int]:
    """The Java to start and its version. Refuses one that is too old."""
    java, version = java_command(), java_version()
    if java is None or version is None or version < OLDEST_JAVA:
        raise OperationError(
            f"Spark needs Java {OLDEST_JAVA} or newer; found: {version or 'none'}. Install one, or "
            "run: pip install 'tapeline[java]'"
        )
    return java, version


def class_archive() -> Path:
    """The archive for sessions of this installation, whether it is there or not."""
    return archive_of(found_java()[0], bare_file_system(), JAVA)


def launch_of(
    settings: Settings,
    connectors: Iterable[Connector] = (),
    short: bool = False,
    make_archive: Path | None = None,
) -> Launch:
    """How the JVM of a session starts. Nothing secret: all users can read a command line."""
    java, version = found_java()
    options = java_options(version, settings.spark.driver_memory, JAVA)
    bare = bare_file_system()
    archived = to_use(archive_of(java, bare, JAVA), version)
    if make_archive is not None:
        archived = to_make(make_archive, version)
    more = (SHORT_WORK,) if short else ()
    return Launch(java, (*options, *more), (*bare, *connector_jars(connectors)), archived)


def prepare_jvm(settings: Settings, short: bool = False) -> None:
    """Start the JVM of the session that `build_session` is asked for later."""
    if starts_here(settings.spark.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        start_ahead(launch_of(settings, short=short))
