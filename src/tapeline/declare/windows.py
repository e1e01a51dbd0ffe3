"""Windows as keys: a key that names an F.window(...) is the window's start and its end."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from textwrap import dedent
from typing import Any

DEFAULT = "window"  # what Spark calls a window that has no alias
PARTS = ("start", "end")


def parts_of(name: str) -> tuple[str, str]:
    """The columns that a window becomes."""
    return f"{name}_start", f"{name}_end"


def with_window_parts(windows: Collection[str], key: Sequence[str]) -> tuple[str, ...]:
    """A key in which each window of a step is replaced by its start and its end."""
    return tuple(part for name in key for part in (parts_of(name) if name in windows else (name,)))


def windows_in(function: Callable[..., Any]) -> set[str]:
    """The names of the windows that a function's own source shows.

    A window has the name that alias() or withColumn() gives it. Without one it is `window`, unless
    the function gives this name to something else.
    """
    try:
        tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return set()  # typed into a console, say: Spark's check prints the key to write
    named = list(_named(tree))
    found = {name for name, value in named if _is_window(value)}
    taken = {id(value) for _, value in named} | {id(value) for value in _opened(tree)}
    alone = any(_is_window(node) and id(node) not in taken for node in ast.walk(tree))
    if alone and DEFAULT not in {name for name, _ in named}:
        found.add(DEFAULT)
    return found


def _named(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every expression that gets a name as a column, with the name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        texts = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
        if node.func.attr in ("alias", "name") and texts:
            yield str(texts[0]), node.func.value
        elif node.func.attr == "withColumn" and texts and len(node.args) > 1:
            yield str(texts[0]), node.args[1]
        elif node.func.attr == "withColumns" and node.args and isinstance(node.args[0], ast.Dict):
            for name, value in zip(node.args[0].keys, node.args[0].values, strict=True):
                if isinstance(name, ast.Constant):
                    yield str(name.value), value


def _opened(tree: ast.AST) -> Iterator[ast.AST]:
    """Windows of which only a part is used: F.window(...).start, F.window(...)["end"]."""
    for node in ast.walk(tree):
        whole = isinstance(node, ast.Attribute) and node.attr in ("alias", "name")
        if isinstance(node, ast.Attribute | ast.Subscript) and not whole:
            yield node.value


def _is_window(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "window"
