"""What the source of a step shows before Spark starts: operations that no step can hold."""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent

from tapeline.declare import Step, Summary
from tapeline.errors import DeclarationError

REPEATS = {"dropDuplicates", "drop_duplicates", "dropDuplicatesWithinWatermark"}
STATEFUL = {
    "applyInPandasWithState",
    "transformWithState",
    "transformWithStateInPandas",
    "applyInPandas",
}
GROUPS = {"groupBy", "groupby"}


def refuse_visible(step: Step) -> None:
    """Refuse what can be read in the function's own source, with the lines to write instead."""
    for call in _calls(step):
        name = _name(call)
        words = None
        if name in STATEFUL:
            words = _stateful(step, name)
        elif name in REPEATS:
            words = _repeats(step, name, call)
        elif name in GROUPS and not isinstance(step, Summary):
            words = _groups(step, name, call)
        elif name == "session_window" and isinstance(step, Summary):
            words = SESSIONS.format(name=step.name)
        if words:
            raise DeclarationError(f"{step.where}: {step.name}() {words}")


SESSIONS = (
    "groups by session_window. A session can grow and merge with another one when a record comes "
    "late, so its numbers are not additive. Group by F.window(...) with a fixed length, or keep "
    "the rows in a table and find the sessions in a view or in a query of your own."
)


def _stateful(step: Step, name: str) -> str:
    return (
        f"uses {name}, a function of your own with state per key. A step has no state: its result "
        "depends on the record and the references alone. Use a key and sequence_by on the table "
        "for the latest record per key, a summary for sums and counts, a view for what compares "
        "rows."
    )


def _repeats(step: Step, name: str, call: ast.Call) -> str:
    key = _listed(call) or '"..."'
    return (
        f"uses {name}. A table with a key counts the same record once, however late its repeat "
        "comes. Put the key on the table that reads the source and remove this call:\n"
        f"    @pipeline.table(key={key})\n"
        f"    def {step.name}({step.stream}: Stream) -> DataFrame: ..."
    )


def _groups(step: Step, name: str, call: ast.Call) -> str:
    key = _listed(call) or '["..."]'
    return (
        f"uses {name}, but a table has a row per record. Add up in a summary that reads this "
        "table:\n"
        f"    @pipeline.summary(key={key})\n"
        f"    def {step.name}_totals({step.name}: Stream) -> DataFrame: "
        f"return {step.name}.groupBy(...).agg(...)"
    )


def _listed(call: ast.Call) -> str:
    """The columns that a call names, as they are written, if all of them are texts."""
    found: list[str] = []
    for argument in call.args:
        parts = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        for part in parts:
            if not isinstance(part, ast.Constant) or not isinstance(part.value, str):
                return ""
            found.append(part.value)
    quoted = ", ".join(f'"{name}"' for name in found)
    return f"[{quoted}]" if len(found) > 1 else quoted


def _calls(step: Step) -> list[ast.Call]:
    try:
        tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(step.function))))
    except (OSError, TypeError, SyntaxError):
        return []  # typed into a console, say: Spark's plan tells the rest
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
