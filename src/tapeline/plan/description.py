"""What a pipeline's steps say, without Spark: enough to see which ones were edited, and where.

A fingerprint is certain, and takes Spark to make. A description is the source of each step without
comments and docstrings, its options, and the project's own functions and constants that it uses.
Equal descriptions are taken for equal steps until Spark looks; different ones may mean the same.
"""

from __future__ import annotations

import ast
import inspect
import re
import site
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tapeline.declare import Step
from tapeline.declare.select import Select
from tapeline.plan.graph import Plan

Facts = dict[str, Any]
CONSTANTS = (str, int, float, bool, Decimal, date, datetime, timedelta, tuple, list, dict, set,
             frozenset, bytes)  # fmt: skip
INSTALLED = ("tapeline", "pyspark")
SETS = (set, frozenset)
MOST_USED = 500  # functions and constants that a step is followed into


def describe(plan: Plan) -> dict[str, Facts]:
    """Every table and summary, by name: what it reads, its options, its source."""
    found = {table.name: _step(plan, table, "table") for table in plan.tables}
    return found | {one.name: _step(plan, one, "summary") for one in plan.summaries}


def _step(plan: Plan, step: Step, kind: str) -> Facts:
    known = {field.name for field in fields(Step)}
    options = {
        field.name: _plain(getattr(step, field.name))
        for field in fields(step)
        if field.name not in known and getattr(step, field.name) != field.default
    }
    facts: Facts = {"kind": kind, "reads": [one.name for one in step.inputs], "options": options}
    source = plan.pipeline.sources.get(step.stream)
    if source is not None and source.connector.fields:  # a query's are not known without Spark
        facts["input"] = _plain(source.connector.records.meaning)
    return facts | {"source": source_of(step.function), "uses": _used(step.function)}


def _plain(value: Any) -> Any:
    """A declared value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if hasattr(value, "sentence"):
        return [value.sentence, value.condition, value.action]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def source_of(function: Callable[..., Any]) -> str:
    """A function's source without decorators, docstring, annotations and comments; or a SELECT."""
    if isinstance(function, Select):
        return dedent(function.sql).strip()
    if isinstance(function, partial):
        given = f"{function.args} {sorted(function.keywords.items())}"
        return f"{source_of(function.func)}\n{_text(given)}"
    try:
        tree = ast.parse(dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        code = getattr(function, "__code__", None)
        whole = f"compiled {code.co_code.hex()} {code.co_names}" if code else ""
        return whole or _text(repr(function))
    if isinstance(tree, ast.FunctionDef):
        tree.decorator_list, tree.returns = [], None
        for argument in tree.args.args:
            argument.annotation = None
        if ast.get_docstring(tree) is not None:
            tree.body = tree.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _used(function: Callable[..., Any]) -> dict[str, str]:
    """The project's own functions and constants that a function uses, and those they use."""
    found: dict[str, str] = {}
    waiting = [function]
    while waiting and len(found) < MOST_USED:
        for name, value in _named(waiting.pop()):
            if name in found:
                continue
            if isinstance(value, FunctionType) and _own(value.__module__):
                found[name] = source_of(value)
                waiting.append(value)
            elif isinstance(value, CONSTANTS):
                listed = sorted(map(repr, value)) if isinstance(value, SETS) else value
                found[name] = _text(repr(listed))
    return found


def _text(said: str) -> str:
    """A text that is the same in every process: objects are named without their addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", said)


def _named(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What a function's names stand for: globals, what it closes over, attributes of modules."""
    code = getattr(function, "__code__", None)
    if code is None:
        return
    names = _names(code)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    around: Mapping[str, Any] = getattr(function, "__globals__", {})
    for name in names:
        if name not in around:
            continue
        value = around[name]
        if not isinstance(value, ModuleType):
            yield name, value
        elif _own(value.__name__):
            for inner in names:
                if hasattr(value, inner):
                    yield f"{name}.{inner}", getattr(value, inner)


def _names(code: CodeType) -> list[str]:
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names(constant)
    return found


def _own(module: str) -> bool:
    """Whether a module belongs to the project, not to Python or to an installed package."""
    if module.partition(".")[0] in INSTALLED and not module.startswith("tapeline.trades"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] not in sys.stdlib_module_names
    installed = (*site.getsitepackages(), sys.prefix, sys.base_prefix)
    return not any(Path(file).is_relative_to(place) for place in installed)
