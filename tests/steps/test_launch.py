"""The JVM of a local Spark, which we start ourselves."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tapeline.errors import OperationError
from tapeline.settings import Settings
from tapeline.spark import jvm, launch
from tapeline.spark.class_archive import is_trusted
from tapeline.spark.jvm import class_archive
from tapeline.spark.launch import (
    MODULES,
    PORT,
    SECRET,
    Launch,
    StartedJvm,
    class_path,
    java_options,
    start_ahead,
    start_gateway,
    starts_here,
)

LEFT_OUT = {"--add-modules=jdk.incubator.vector"}

pytestmark = pytest.mark.spark


def test_java_gets_what_sparks_own_launcher_says(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    said = java.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions().split()
    assert set(said) - set(MODULES) == LEFT_OUT
    assert set(MODULES) <= set(said)


def test_the_class_path_has_files_only_and_all_jars_of_spark(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    known = java.java.lang.System.getProperty("java.class.path").split(os.pathsep)
    assert all(os.path.isfile(name) for name in known)
    ours = [str(jar) for jar in class_path()]
    assert known[: len(ours)] == ours
    assert len(ours) > 200


def test_nobody_else_finds_the_gateway(spark: SparkSession) -> None:
    assert not {PORT, SECRET} & os.environ.keys()
    assert spark.sparkContext.getConf().get("spark.master").startswith("local")


def test_scripts_of_sparks_own_start_what_we_do_not() -> None:
    assert starts_here("local[2]", {})
    assert not starts_here("spark://127.0.0.1:7077", {})
    assert not starts_here("local[2]", {"SPARK_CONF_DIR": "/etc/spark"})
    assert not starts_here("local[2]", {"PYSPARK_SUBMIT_ARGS": "--jars x pyspark-shell"})


def test_a_java_that_ends_is_told() -> None:
    with pytest.raises(OperationError, match="Java exited with 7"):
        start_gateway(Launch("/bin/sh", ("-c", "exit 7"), ()))


def test_a_java_that_an_archive_breaks_starts_without_it() -> None:
    broken = 'test "$0" != archive; exit $((6 + $?))'
    with pytest.raises(OperationError, match="Java exited with 6"):
        start_gateway(Launch("/bin/sh", ("-c", broken), (), ("archive",)))
    with pytest.raises(OperationError, match="Java exited with 7"):
        StartedJvm(Launch("/bin/sh", ("-c", broken), (), ("archive",))).connect()


def test_a_jvm_that_nobody_asks_for_ends() -> None:
    start_ahead(Launch("/bin/sh", ("-c", "sleep 600"), (Path("of-another-session.jar"),)))
    (ahead,) = launch._ahead
    with pytest.raises(OperationError, match="Java exited with 7"):
        start_gateway(Launch("/bin/sh", ("-c", "exit 7"), ()))
    assert ahead.process.poll() == -signal.SIGKILL


def test_the_archive_that_set_up_made_is_used(spark: SparkSession) -> None:
    archive = class_archive()
    if not is_trusted(archive):
        pytest.skip("there is no archive: run 'tapeline setup'")
    java: Any = spark.sparkContext._jvm
    process = java.java.lang.ProcessHandle.current().pid()
    assert str(archive) in Path(f"/proc/{process}/maps").read_text()


def test_java_24_is_not_told_to_open_what_it_lacks() -> None:
    assert any("sun.security.action" in one for one in java_options(17, "2g", ""))
    assert not any("sun.security.action" in one for one in java_options(25, "2g", ""))


def test_without_java_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "java_command", lambda: None)
    monkeypatch.setattr(jvm, "java_version", lambda: None)
    with pytest.raises(OperationError, match=r"found: none.*pip install 'tapeline\[java\]'"):
        jvm.launch_of(Settings())
