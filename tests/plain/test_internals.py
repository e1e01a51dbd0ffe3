"""Spark's private names appear in one module, and in the JVM's lock."""

from __future__ import annotations

import re
from pathlib import Path

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
