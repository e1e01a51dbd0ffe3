"""What Spark's own process writes: files for their user alone, and nothing a terminal obeys."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tapeline.spark import session
from tests.support.hostile import HOSTILE, obeyed

PATTERN = "appender.console.layout.pattern"


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_files_that_spark_makes_are_for_their_user_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Such as checkpoints. Hadoop does not ask for the umask of its process."""
    jvm: Any = spark.sparkContext._jvm
    jsc: Any = spark.sparkContext._jsc
    path = jvm.org.apache.hadoop.fs.Path
    files = path(str(tmp_path)).getFileSystem(jsc.hadoopConfiguration())
    files.mkdirs(path(str(tmp_path / "made" / "below")))
    files.create(path(str(tmp_path / "made" / "file"))).close()
    assert [mode(tmp_path / "made" / name) for name in ("", "below")] == ["0o700", "0o700"]
    assert mode(tmp_path / "made" / "file") == "0o600"


def test_an_error_that_spark_prints_is_harmless(spark: SparkSession) -> None:
    """Spark's errors quote the values of records, and its console is the user's terminal."""
    jvm: Any = spark.sparkContext._jvm
    said = jvm.java.util.Properties()
    said.load(
        jvm.java.io.FileReader(str(Path(session.__file__).parent / "log4j" / "log4j2.properties"))
    )
    log4j = jvm.org.apache.logging.log4j
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern(said[PATTERN]).build()
    event = log4j.core.impl.Log4jLogEvent.newBuilder().setLoggerName("org.x.Query")
    event = event.setMessage(log4j.message.SimpleMessage(f"of a message {HOSTILE}"))
    event = event.setThrown(jvm.java.lang.RuntimeException(f"of an error {HOSTILE}"))
    shown = layout.toSerializable(event.setLevel(log4j.Level.ERROR).build())
    assert obeyed(shown.replace("\tat ", "")) == []
    assert "of a message \\[/x][link=" in shown
    assert "RuntimeException: of an error \\[/x][link=" in shown
    assert shown.count("\n") > 2
