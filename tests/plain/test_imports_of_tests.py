"""Tests share helpers by tests/support alone, so that a test can move or go without another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TESTS = REPOSITORY / "tests"
SUPPORT = TESTS / "support"
FIXTURES = SUPPORT.parent / "fixtures"  # input, some of it pipelines
FOLDERS = {path.name for path in TESTS.iterdir() if path.is_dir()}
MODULES = sorted(TESTS.rglob("*.py"))
OUTSIDE = sorted(
    path for name in ("src", "benchmarks", "examples") for path in (REPOSITORY / name).rglob("*.py")
)


def imported(path: Path) -> Iterator[str]:
    """Every module that a file may import, wherever in the file; `from a import b` may be a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{one.name}" for one in node.names)


def among_tests(name: str) -> bool:
    first, *rest = name.split(".")
    own = first in {"tests", "conftest"} or first.startswith("test_")
    return own or (first in FOLDERS and bool(rest))


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_a_module_below_tests_is_a_test_a_conftest_or_support() -> None:
    others = [p for p in MODULES if not {SUPPORT, FIXTURES} & set(p.parents)]
    known = [path for path in others if path.name.startswith("test_") or path.stem == "conftest"]
    assert sorted(map(named, set(others) - set(known))) == []
    assert list(map(named, SUPPORT.rglob("test_*.py"))) == []


def test_tests_import_of_each_other_only_what_is_in_support() -> None:
    wrong = [
        (named(path), name)
        for path in MODULES
        for name in imported(path)
        if among_tests(name) and not name.startswith("tests.support.")
    ]
    assert wrong == []


def test_nothing_else_imports_tests() -> None:
    found = [(named(path), name) for path in OUTSIDE for name in imported(path)]
    assert found
    assert [one for one in found if one[1].split(".")[0] == "tests"] == []
