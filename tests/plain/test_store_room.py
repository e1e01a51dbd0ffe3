"""Only the room `store` touches files, locks, Delta logs and DuckDB.

Decision 17 lists the modules that do so all the same, each with its reason; this test reads that
list. A new module that opens a file fails here, and so does a line of the list that is out of date.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tapeline"
DECISION = Path(__file__).parents[2] / "docs" / "decisions" / "0017-rooms.md"
LIBRARIES = {"shutil", "fcntl", "tempfile", "duckdb", "deltalake"}
METHODS = {
    "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "rename", "rmdir",
    "touch", "iterdir", "glob", "rglob", "stat", "lstat", "exists", "is_dir", "is_file", "chmod",
    "hardlink_to", "symlink_to",
}  # fmt: skip
OF_OS = {
    "open", "fdopen", "read", "pread", "write", "pwrite", "rename", "replace", "link", "unlink",
    "remove", "rmdir", "mkdir", "makedirs", "listdir", "scandir", "walk", "stat", "lstat", "fstat",
    "access", "utime", "fsync", "ftruncate", "chmod", "fchmod",
}  # fmt: skip
MODE = re.compile(r"[rwxab+]{1,3}")


def touches(tree: ast.AST) -> Iterator[str]:
    """What a module does with files and databases, in its own words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] in LIBRARIES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in LIBRARIES:
                yield str(node.module)
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _called(call: ast.Call) -> Iterator[str]:
    function = call.func
    if isinstance(function, ast.Name) and function.id == "open":
        yield "open()"
    if not isinstance(function, ast.Attribute):
        return
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if owner == "F":  # pyspark.sql.functions
        return
    of_os = owner == "os"
    if of_os and function.attr in OF_OS:
        yield f"os.{function.attr}()"
    elif not of_os and function.attr in METHODS:
        yield f".{function.attr}()"
    elif function.attr == "open" and call.args and _is_mode(call.args[0]):
        yield ".open()"


def _is_mode(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and bool(MODE.fullmatch(str(argument.value)))


def exceptions() -> list[list[str]]:
    """The modules that decision 17 excepts, row by row."""
    text = DECISION.read_text(encoding="utf-8")
    part = text.split("## What touches files outside `store/`")[1].split("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in rows]


def touching() -> dict[str, set[str]]:
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix().removesuffix(".py")
        if not name.startswith("store/"):
            found[name] = set(touches(ast.parse(path.read_text(encoding="utf-8"))))
    return {name: what for name, what in found.items() if what}


def test_only_the_store_touches_files():
    allowed = [name for row in exceptions() for name in row]
    found = touching()
    others = {n: w for n, w in found.items() if not any(fnmatch(n, one) for one in allowed)}
    assert others == {}


def test_every_exception_is_still_one():
    found = touching()
    stale = [r for r in exceptions() if not any(fnmatch(n, one) for n in found for one in r)]
    assert stale == []


@pytest.mark.parametrize(
    "code",
    [
        "import duckdb",
        "from deltalake import DeltaTable",
        "open('x')",
        "path.open('rb')",
        "os.rename(a, b)",
        "Path('x').write_text('y')",
    ],
)
def test_the_reader_of_modules_sees(code: str):
    assert list(touches(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["text.replace('a', 'b')", "books.open(c, 'n')", "os.getpid()", "F.exists(c, f)"]
)
def test_the_reader_of_modules_leaves_alone(code: str):
    assert not list(touches(ast.parse(code)))
