"""The JVM of a local Spark, which we start ourselves."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tapeline.errors import OperationError
from tapeline.settings import Settings
from tapeline.spark import launch, session
from tapeline.spark.launch import MODULES, PORT, SECRET, class_path, starts_here

LEFT_OUT = {"--add-modules=jdk.incubator.vector"}

pytestmark = pytest.mark.spark


def test_java_gets_what_sparks_own_launcher_says(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    said = jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions().split()
    assert set(said) - set(MODULES) == LEFT_OUT
    assert set(MODULES) <= set(said)


def test_the_class_path_has_files_only_and_all_jars_of_spark(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    known = jvm.java.lang.System.getProperty("java.class.path").split(os.pathsep)
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


def test_a_java_that_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OperationError, match="Java exited with 7"):
        launch.start_gateway("/bin/sh", ["-c", "exit 7"], [])


def test_without_java_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_command", lambda: None)
    monkeypatch.setattr(session, "java_version", lambda: None)
    with pytest.raises(OperationError, match=r"found: none.*pip install 'tapeline\[java\]'"):
        session._start_jvm(Settings(), {}, [])
