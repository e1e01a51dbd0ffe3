"""What a step may hold, checked on Spark's analysed plan before any data is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tapeline.declare import Step, Summary
from tapeline.errors import DeclarationError

NODES = {"Project", "Filter", "SubqueryAlias", "LogicalRDD", "Generate", "Join", "Expand",
         "ResolvedHint", "LocalRelation"}  # fmt: skip
REFUSED_EXPRESSIONS = {
    "PythonUDF": "a Python function per row; write it with pyspark.sql.functions",
    "PythonUDAF": "a Python function per group",
    "ScalaUDF": "a function that Spark cannot look into",
    "CurrentTimestamp": "the clock of the machine; use a column of the record",
    "Now": "the clock of the machine; use a column of the record",
    "CurrentDate": "the clock of the machine; use a column of the record",
    "LocalTimestamp": "the clock of the machine; use a column of the record",
    "CurrentTime": "the clock of the machine; use a column of the record",
    "CurrentBatchTimestamp": "the clock of the machine; use a column of the record",
    "InputFileName": "the file that Spark happens to read",
    "WindowExpression": "a window over other rows; that belongs in a view",
    "ScalarSubquery": "a query inside a query; join to a reference instead",
}


@dataclass(frozen=True)
class Shape:
    """What an analysed step looks like."""

    text: str  # normalised: the step's fingerprint is made of it
    explodes: bool
    reads: frozenset[str]


def inspect_plan(
    result: DataFrame, step: Step, snapshots: Mapping[str, DataFrame], stream: DataFrame
) -> Shape:
    """Refuse what would make a result depend on more than the record and its references."""
    plan: Any = result._jdf.queryExecution().analyzed()
    own = _stop_at(stream)
    nodes: list[Any] = []
    _collect(plan, own, nodes)
    names = [node.nodeName() for node in nodes]
    allowed = NODES | ({"Aggregate"} if isinstance(step, Summary) else set())
    for node, name in zip(nodes, names, strict=True):
        if name not in allowed:
            raise DeclarationError(
                f"{step.where}: {step.name}() uses {name}, but a "
                f"{'summary' if isinstance(step, Summary) else 'table'} holds only projections, "
                "filters, explodes and left joins to references"
                f"{', then one aggregation' if isinstance(step, Summary) else ''}."
            )
        if name == "Join":
            _check_join(node, step)
        _check_expressions(node, step)
    explodes = any(name in ("Generate", "Expand") for name in names)
    return Shape(_normalised(plan), explodes, _columns_read(result))


def _columns_read(result: DataFrame) -> frozenset[str]:
    """The columns that the optimised step refers to; the rest need not travel to Spark."""
    found: set[str] = set()
    waiting: list[Any] = [result._jdf.queryExecution().optimizedPlan()]
    while waiting:
        node = waiting.pop()
        attributes = node.references().toSeq()
        found |= {str(attributes.apply(i).name()) for i in range(attributes.size())}
        waiting += [node.children().apply(i) for i in range(node.children().size())]
    return frozenset(found)


def _stop_at(stream: DataFrame) -> str:
    """The plan of the step's own input: what the engine put there is not the user's."""
    return str(stream._jdf.queryExecution().analyzed().canonicalized().toString())


def _collect(node: Any, own: str, found: list[Any]) -> None:
    if str(node.canonicalized().toString()) == own:
        return
    found.append(node)
    children = node.children()
    for index in range(children.size()):
        _collect(children.apply(index), own, found)


def _check_join(node: Any, step: Step) -> None:
    if node.joinType().toString() != "LeftOuter":
        raise DeclarationError(
            f"{step.where}: {step.name}() uses a {node.joinType().sql()} join. Use a left join to "
            "a reference, so that no record is lost; a missing row can be quarantined by an "
            "expectation."
        )


def _check_expressions(node: Any, step: Step) -> None:
    waiting = [node.expressions().apply(i) for i in range(node.expressions().size())]
    while waiting:
        expression = waiting.pop()
        name = expression.getClass().getSimpleName()
        if name in REFUSED_EXPRESSIONS or not expression.deterministic():
            why = REFUSED_EXPRESSIONS.get(name, "its result may differ when it is computed again")
            raise DeclarationError(
                f"{step.where}: {step.name}() uses {expression.sql()}: {why}. The same records "
                "must always give the same result."
            )
        children = expression.children()
        waiting += [children.apply(i) for i in range(children.size())]


def _normalised(plan: Any) -> str:
    """The analysed plan without the ids that differ from one session to the next."""
    text = str(plan.toString())
    seen: dict[str, str] = {}
    return re.sub(r"#\d+L?", lambda m: seen.setdefault(m[0], f"#{len(seen)}"), text)
