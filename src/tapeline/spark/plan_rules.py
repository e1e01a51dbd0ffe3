"""What a step may hold, checked on Spark's analysed plan before any data is touched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline.declare import Step, Summary, Table
from tapeline.errors import DeclarationError
from tapeline.plan.visible import SESSIONS
from tapeline.spark.digits import Digits
from tapeline.spark.internals import PlanNode, analysed_plan, each, optimised_plan

NODES = {"Project", "Filter", "SubqueryAlias", "LogicalRDD", "Generate", "Join", "Expand",
         "ResolvedHint", "LocalRelation"}  # fmt: skip
ALL_FIELDS = 2**31 - 1  # Spark leaves out of a plan's text what is beyond the 25th field
REFUSED_EXPRESSIONS = {
    "PythonUDF": "a Python function per row; use pyspark.sql.functions",
    "PythonUDAF": "a Python function per group",
    "ScalaUDF": "a function that Spark cannot analyse",
    "CurrentTimestamp": "the machine's clock; use a column of the record",
    "Now": "the machine's clock; use a column of the record",
    "CurrentDate": "the machine's clock; use a column of the record",
    "LocalTimestamp": "the machine's clock; use a column of the record",
    "CurrentTime": "the machine's clock; use a column of the record",
    "CurrentBatchTimestamp": "the machine's clock; use a column of the record",
    "InputFileName": "the name of the file that Spark reads",
    "WindowExpression": "a window over other rows; use it in a view",
    "ScalarSubquery": "a query inside a query; join to a reference instead",
    "InSubquery": "a query inside a query; join to a reference instead",
    "ListQuery": "a query inside a query; join to a reference instead",
    "Exists": "a query inside a query; join to a reference instead",
}


@dataclass(frozen=True)
class PlanShape:
    """What an analysed step looks like."""

    text: str  # the user's part, normalised: the step's fingerprint is made of it
    explodes: bool
    reads: frozenset[str]
    cuts: tuple[str, ...] = ()  # a sentence for each expression in which Spark would cut digits
    matches: tuple[str, ...] = ()  # references in which a record must have a match
    filters: bool = False


def inspect_plan(
    result: DataFrame, step: Step, snapshots: Mapping[str, DataFrame], stream: DataFrame
) -> PlanShape:
    """Refuse what would make a result depend on more than the record and its references."""
    plan = analysed_plan(result)
    own = analysed_plan(stream)
    nodes: list[PlanNode] = []
    lines: list[str] = []
    _collect(plan, own, nodes, lines)
    names = [node.nodeName() for node in nodes]
    allowed = NODES | ({"Aggregate"} if isinstance(step, Summary) else set())
    for node, name in zip(nodes, names, strict=True):
        _check_expressions(node, step)
        if name not in allowed:
            raise DeclarationError(
                f"{step.where}: {step.name}() uses {name}, but a "
                f"{'summary' if isinstance(step, Summary) else 'table'} holds only projections, "
                "filters, explodes and joins to references"
                f"{', then one aggregation' if isinstance(step, Summary) else ''}."
            )
        if name == "Join":
            _check_join(node, step)
        if isinstance(step, Summary):
            _refuse_sessions(node, step)
    inner = [node for node in nodes if node.nodeName() == "Join" and _is_inner(node)]
    explodes = any(name in ("Generate", "Expand") for name in names)
    digits = Digits(result.sparkSession)
    cuts = [words for node in nodes for words in digits.cuts(node.expressions())]
    if isinstance(step, Table) and step.expectations:
        rules = result.select(*[F.expr(rule.condition) for rule in step.expectations])
        cuts += digits.cuts(analysed_plan(rules).expressions())
    return PlanShape(
        _normalised(lines),
        explodes,
        _columns_read(result),
        tuple(dict.fromkeys(cuts)),
        _joined(inner, snapshots),
        "Filter" in names,
    )


def _columns_read(result: DataFrame) -> frozenset[str]:
    """The columns that the optimised step refers to; the rest need not travel to Spark."""
    found: set[str] = set()
    waiting: list[PlanNode] = [optimised_plan(result)]
    while waiting:
        node = waiting.pop()
        found |= {str(attribute.name()) for attribute in each(node.references().toSeq())}
        waiting += each(node.children())
    return frozenset(found)


def _collect(
    node: PlanNode, own: PlanNode, found: list[PlanNode], lines: list[str], depth: int = 0
) -> None:
    """The nodes above the step's own input: what the engine put below it is not the user's."""
    indent = " " * depth
    if node.equals(own):
        lines.append(f"{indent}the input")
        return
    if node.nodeName() == "View":  # the name under which a SELECT reads a table
        _collect(node.children().apply(0), own, found, lines, depth)
        return
    found.append(node)
    lines.append(f"{indent}{node.simpleString(ALL_FIELDS)}")
    for child in each(node.children()):
        _collect(child, own, found, lines, depth + 1)


def _check_join(node: PlanNode, step: Step) -> None:
    """A join has the stream on one side and a reference on the other."""
    kind = node.joinType().toString()
    left, right = (_is_stream(node.children().apply(side)) for side in (0, 1))
    if left and right:
        raise DeclarationError(
            f"{step.where}: {step.name}() joins its stream to itself. Which records it would find "
            "depends on the batch. Join to a reference, or compare rows in a view."
        )
    if (kind == "LeftOuter" and left) or _is_inner(node):
        return
    raise DeclarationError(
        f"{step.where}: {step.name}() uses a {node.joinType().sql()} join. Use a left join from "
        "the stream to a reference, which keeps every record, or an inner join, which drops "
        "records without a match."
    )


def _is_inner(node: PlanNode) -> bool:
    return str(node.joinType().toString()) == "Inner"


def _is_stream(node: PlanNode) -> bool:
    """Whether the step's stream is in this part of the plan: only its rows have a position."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if any(a.name() == "_position" for a in each(one.output())):
            return True
        waiting += each(one.children())
    return False


def _joined(joins: list[PlanNode], snapshots: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """The references on the other side of some joins."""
    leaves = {
        name: leaf for name, rows in snapshots.items() for leaf in _leaves(analysed_plan(rows))
    }
    sides = [side for join in joins for side in each(join.children()) if not _is_stream(side)]
    found = [leaf for side in sides for leaf in _leaves(side)]
    return tuple(
        name for name, own in leaves.items() if any(own.sameResult(leaf) for leaf in found)
    )


def _leaves(node: PlanNode) -> list[PlanNode]:
    return each(node.collectLeaves())


def _refuse_sessions(node: PlanNode, step: Step) -> None:
    for attribute in each(node.output()):
        if attribute.metadata().contains("spark.sessionWindow"):
            raise DeclarationError(f"{step.where}: {step.name}() {SESSIONS}")


def _check_expressions(node: PlanNode, step: Step) -> None:
    waiting = each(node.expressions())
    while waiting:
        expression = waiting.pop()
        name = expression.getClass().getSimpleName()
        if name in REFUSED_EXPRESSIONS or not expression.deterministic():
            why = REFUSED_EXPRESSIONS.get(name, "its result may differ on the next run")
            raise DeclarationError(
                f"{step.where}: {step.name}() uses {expression.sql()}: {why}. The same records "
                "must always give the same result."
            )
        children = expression.children()
        waiting += [children.apply(i) for i in range(children.size())]


def _normalised(lines: list[str]) -> str:
    """A plan's lines without the ids that differ from one session to the next."""
    seen: dict[str, str] = {}
    return re.sub(r"#\d+", lambda m: seen.setdefault(m[0], f"#{len(seen)}"), "\n".join(lines))
