"""Spark's private names appear in one module, and in the JVM's lock."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pyspark
import pytest

from tapeline import OperationError
from tapeline.spark.internals import PINNED, refuse_other_version

SRC = Path(__file__).parents[2] / "src" / "tapeline"
PRIVATE = re.compile(
    r"\._(jvm|jdf|jsc|jsparkSession|jsession|temp_dir|gateway|jc|jschema)\b|error\._origin|_load_from_socket"
    r"|\bjvm\.|import py4j|from py4j"
)
# The lock is below the room of Spark; it asks the JVM of the session that it is given.
ALLOWED = {"spark/internals.py", "store/lock.py"}


def test_private_classes_of_spark_are_behind_one_face():
    found = {
        path.relative_to(SRC).as_posix()
        for path in SRC.rglob("*.py")
        if PRIVATE.search(path.read_text(encoding="utf-8"))
    }
    assert found == ALLOWED


def test_another_version_of_spark_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"pyspark=={PINNED}" in project["project"]["dependencies"]
    refuse_other_version()
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    with pytest.raises(OperationError, match=r"this is 4\.1\.1.*flow\.prepared = false"):
        refuse_other_version()
