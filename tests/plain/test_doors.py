"""Connectors and formats are used by their protocols: no room asks what class or name they have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tapeline
from tapeline import Kafka, OperationError, Pipeline, Query
from tapeline.operate.drill.feed import drop_folder

SRC = Path(tapeline.__file__).parent
# Whatever a pipeline may declare as a source, a sink or a pull, and what users extend.
CONNECTORS = {"Source", "Destination"} | {
    name
    for path in (SRC / "connect").glob("*.py")
    for name, kind in vars(import_module(f"tapeline.connect.{path.stem}")).items()
    if isinstance(kind, type) and kind.__module__.startswith("tapeline.connect")
    if any(hasattr(kind, door) for door in ("taken_by", "destination", "goes_to", "reader"))
}
FORMATS = {"Json", "Csv", "Text", "Avro", "Fix", "Parquet"}
# A format's own module, and the module of spark/ that reads its text, know its options.
KNOW_FORMATS = {"formats", "spark/json.py", "spark/csv.py", "connect/files.py"}
# The names mean something else here: how people want to see numbers, or what the log looks like.
OTHER_WORDS = {"cli/sql.py", "cli/options.py", "operate/log.py", "show.py", "serve/api/context.py"}
MODULES = {path.relative_to(SRC).as_posix(): path for path in SRC.rglob("*.py")}


def named(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} | {
        one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)
    }


def asked_classes(tree: ast.Module) -> Iterator[str]:
    """The classes that a module asks for by isinstance, issubclass, type() or match."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and named(node.func) & {"isinstance", "issubclass"}:
            yield from named(node.args[1])
        if isinstance(node, ast.Compare) and "type" in named(node.left):
            yield from (name for one in node.comparators for name in named(one))
        if isinstance(node, ast.MatchClass):
            yield from named(node.cls)


def compared_texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for one in ast.walk(node):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield one.value
        if isinstance(node, ast.MatchValue):
            yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))


def belongs(name: str, rooms: set[str]) -> bool:
    return name in rooms or name.split("/", maxsplit=1)[0] in rooms


def test_the_connectors_are_found() -> None:
    assert {"Files", "Kafka", "Own", "Console", "Memory", "Foreach", "HttpPull"} <= CONNECTORS


@pytest.mark.parametrize("name", sorted(MODULES))
def test_nobody_asks_for_the_class_of_a_connector_or_the_name_of_a_format(name: str) -> None:
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    asked = set(asked_classes(tree))
    assert not asked & CONNECTORS
    if not belongs(name, KNOW_FORMATS):
        assert not asked & FORMATS
        texts = {one.name for one in tapeline.formats.named.NAMED.values()}
        spark = {"json", "csv"} if name == "spark/decode.py" else set()  # two of the three texts
        found = set(compared_texts(tree)) & texts - spark
        assert not found or belongs(name, OTHER_WORDS)


def reading(spark: Any) -> Any:
    """A query of the user's own; never started here."""


@pytest.mark.parametrize(
    ("connector", "words"), [(Kafka("trades", schema="id string"), "topic trades"),
                             (Query(reading), "query reading")],
)  # fmt: skip
def test_a_drill_of_what_is_not_a_folder_says_so(
    tmp_path: Path, connector: Any, words: str
) -> None:
    pipeline = Pipeline("p")
    pipeline.source("raw", connector)
    with pytest.raises(OperationError, match=f"a drill works with files.*{words}"):
        drop_folder(SimpleNamespace(pipeline=pipeline), tmp_path)  # type: ignore[arg-type]
