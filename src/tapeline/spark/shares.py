"""Taking a summary's one aggregation apart: the rows that are added up, before they are.

A user writes groupBy(...).agg(sum, count). The engine evaluates the grouping columns and what is
summed for every record, so that each record's own share is kept as a link, and adds the shares up
itself by key, cause and sign.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline.declare import Summary
from tapeline.errors import DeclarationError, did_you_mean

ADVICE = (
    "A measure is a plain F.sum or F.count of decimals or integers, with no expression around it. "
    "Compute averages, rates, minima and running totals in a view."
)


def split_aggregation(result: DataFrame, summary: Summary) -> tuple[DataFrame, list[str]]:
    """One row per record and key, with its share of every measure, and the measures' names."""
    session = result.sparkSession
    jvm: Any = session.sparkContext._jvm
    plan: Any = result._jdf.queryExecution().analyzed()
    renames, aggregate = _aggregation(plan, summary)
    names = [_rename(renames, e, summary) for e in _each(aggregate.aggregateExpressions())]
    columns: list[tuple[str, Any]] = []
    finish: dict[str, Any] = {}
    measures: list[str] = []
    for name, expression in zip(names, _each(aggregate.aggregateExpressions()), strict=True):
        if name is None:
            continue
        inner = expression.child() if expression.nodeName() == "Alias" else expression
        if inner.getClass().getSimpleName() != "AggregateExpression":
            if _aggregates(inner):
                raise DeclarationError(
                    f"{summary.where}: {summary.name}(): '{name}' is {inner.sql()}, which is not "
                    f"additive. {ADVICE}"
                )
            columns.append((name, inner))
            finish[name] = F.col(f"`{name}`")
            continue
        measures.append(name)
        parts, finish[name] = _measure(name, inner, result, summary)
        columns += parts
    _check_key(summary, [name for name in finish if name not in measures])
    child = aggregate.child()
    position = next((a for a in _each(child.output()) if a.name() == "_position"), None)
    if position is None:
        raise DeclarationError(
            f"{summary.where}: {summary.name}() loses '_position' before it aggregates. Use "
            'withColumns or select("*", ...).'
        )
    aliases = [_alias(jvm, name, expression) for name, expression in columns]
    sequence = jvm.PythonUtils.toSeq(_java_list(session, [*aliases, position]))
    project = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(sequence, child)
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    rows = DataFrame(dataset.ofRows(session._jsparkSession, project), session)
    order = [*summary.key, *measures]
    return rows.select(*[finish[name].alias(name) for name in order], "_position"), measures


def _aggregation(plan: Any, summary: Summary) -> tuple[list[Any], Any]:
    """The one Aggregate, and the renaming projections above it."""
    renames: list[Any] = []
    node = plan
    while node.nodeName() in ("Project", "SubqueryAlias"):
        if node.nodeName() == "Project":
            renames.append(node)
        node = node.children().apply(0)
    if node.nodeName() != "Aggregate":
        raise DeclarationError(
            f"{summary.where}: {summary.name}() must end in one groupBy(...).agg(...), with at "
            f"most renames after it; it ends in {node.nodeName()}."
        )
    return renames, node


def _rename(renames: list[Any], expression: Any, summary: Summary) -> str | None:
    """The name a column has in the end, or None when it is left out."""
    identity = expression.exprId()
    name: str | None = str(expression.name())
    for project in reversed(renames):
        match = None
        for item in _each(project.projectList()):
            inner = item.child() if item.nodeName() == "Alias" else item
            if inner.getClass().getSimpleName() != "AttributeReference":
                raise DeclarationError(
                    f"{summary.where}: {summary.name}() computes {item.sql()} after its "
                    f"aggregation. {ADVICE}"
                )
            if inner.exprId().equals(identity):
                match = item
        if match is None:
            return None
        identity, name = match.exprId(), str(match.name())
    return name


def _measure(
    name: str, aggregate: Any, result: DataFrame, summary: Summary
) -> tuple[list[tuple[str, Any]], Any]:
    """What a record adds to a measure."""
    function = aggregate.aggregateFunction()
    kind = function.getClass().getSimpleName()
    kind_of = result.schema[name].dataType
    refused = (
        kind not in ("Sum", "Count") or aggregate.isDistinct() or aggregate.filter().isDefined()
    )
    if refused or kind_of.typeName() in ("double", "float"):
        raise DeclarationError(
            f"{summary.where}: {summary.name}(): '{name}' is {aggregate.sql()} of type "
            f"{kind_of.simpleString()}, which is not additive. {ADVICE}"
        )
    if kind == "Sum":
        # Both sides of one type: beside an integer Spark would cut the decimals of a long one.
        share = F.coalesce(F.col(f"`{name}`").cast(kind_of), F.lit(0).cast(kind_of))
        return [(name, function.child())], share
    children = _each(function.children())
    parts = [(f"{name}__{i}", child) for i, child in enumerate(children)]
    present: Any = F.lit(True)
    for part, _ in parts:
        present = present & F.col(f"`{part}`").isNotNull()
    return parts, F.when(present, 1).otherwise(0).cast("bigint")


def _check_key(summary: Summary, grouped: list[str]) -> None:
    if set(summary.key) == set(grouped):
        return
    for name in summary.key:
        if name not in grouped:
            raise DeclarationError(
                f"{summary.where}: {summary.name}() has the key '{name}' but does not group by "
                f"it.{did_you_mean(name, grouped)}"
            )
    more = ", ".join(sorted(set(grouped) - set(summary.key)))
    raise DeclarationError(
        f"{summary.where}: {summary.name}() also groups by {more}. Add it to the key."
    )


def _alias(jvm: Any, name: str, expression: Any) -> Any:
    named = jvm.org.apache.spark.sql.catalyst.expressions.NamedExpression
    empty = jvm.PythonUtils.toSeq(jvm.java.util.ArrayList())
    return jvm.org.apache.spark.sql.catalyst.expressions.Alias(
        expression, name, named.newExprId(), empty, jvm.scala.Option.empty(), empty
    )


def _java_list(session: Any, items: list[Any]) -> Any:
    values = session.sparkContext._jvm.java.util.ArrayList()
    for item in items:
        values.add(item)
    return values


def _aggregates(expression: Any) -> bool:
    """Whether an aggregate hides inside an expression."""
    return expression.getClass().getSimpleName() == "AggregateExpression" or any(
        _aggregates(child) for child in _each(expression.children())
    )


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]
