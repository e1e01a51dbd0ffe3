"""Taking a summary's one aggregation apart: the rows that are added up, before they are.

A user writes groupBy(...).agg(sum, count, avg). The engine evaluates the grouping columns and what
is summed for every record, so that each record's own share is kept as a link, and adds the shares
up itself by key, cause and sign.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tapeline.books.measures import COUNT, RESERVED, SUM
from tapeline.declare import Summary
from tapeline.declare.windows import PARTS, parts_of
from tapeline.errors import DeclarationError, did_you_mean
from tapeline.spark.internals import Expression, PlanNode, analysed_plan, each, item_of, selected
from tapeline.spark.pivots import Share, pivot_of, unaliased

ADVICE = (
    "A measure is a plain F.sum, F.avg or F.count of decimals or integers, with no expression "
    "around it. Compute rates, minima and running totals in a view."
)
MEASURES = ("Sum", "Count", "Average")


class Outcome(NamedTuple):
    """A column of the aggregation as the step returns it: its name, and the field of a window."""

    name: str
    field: str | None = None
    item: int | None = None  # of the values that a pivot makes


def split_aggregation(result: DataFrame, summary: Summary) -> tuple[DataFrame, list[str]]:
    """One row per record and key, with its share of every measure, and the measures' names."""
    renames, aggregate = _aggregation(analysed_plan(result), summary)
    pivot = pivot_of(result, aggregate)
    columns: list[tuple[str, Expression]] = []
    finish: dict[str, Column] = {}
    measures: list[str] = []
    for expression in each(aggregate.aggregateExpressions()):
        for outcome in _outcomes(renames, expression, summary):
            if outcome.name == "_position":
                continue  # a pivot in SQL groups by every column that it does not name
            inner = unaliased(expression)
            share = pivot.share(inner, outcome.item) if pivot else Share(inner)
            if share.expression.getClass().getSimpleName() == "AggregateExpression":
                parts, made = _measure(outcome.name, share, result, summary)
                measures += made
            else:
                parts, made = _key_part(outcome, share.expression, result, summary)
            columns += parts
            for one in made.keys() & finish.keys():
                raise DeclarationError(
                    f"{summary.where}: {summary.name}() makes the column '{one}' twice. Rename one."
                )
            finish |= made
    _check_key(summary, [name for name in finish if name not in measures])
    child = pivot.child if pivot else aggregate.child()
    rows = selected(result, child, columns, _position(child, summary))
    order = [*summary.key, *measures]
    return rows.select(*[finish[name].alias(name) for name in order], "_position"), measures


def _position(child: PlanNode, summary: Summary) -> Expression:
    """The place of each record, which must reach the aggregation."""
    position = next((a for a in each(child.output()) if a.name() == "_position"), None)
    if position is None:
        raise DeclarationError(
            f"{summary.where}: {summary.name}() loses '_position' before it aggregates. Use "
            'withColumns or select("*", ...).'
        )
    return position


def _aggregation(plan: PlanNode, summary: Summary) -> tuple[list[PlanNode], PlanNode]:
    """The one Aggregate, and the renaming projections above it."""
    renames: list[PlanNode] = []
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


def _outcomes(renames: list[PlanNode], expression: Expression, summary: Summary) -> list[Outcome]:
    """What becomes of a column of the aggregation: nothing when it is left out.

    Behind the aggregation a column may be renamed, and a window taken apart.
    """
    found = [(expression.exprId(), Outcome(str(expression.name())))]
    for project in reversed(renames):
        kept = []
        for item in each(project.projectList()):
            inner = item.child() if item.nodeName() == "Alias" else item
            field, at = None, None
            if inner.getClass().getSimpleName() == "GetStructField":
                field, inner = str(inner.extractFieldName()), inner.child()
            elif inner.getClass().getSimpleName() == "GetArrayItem":
                at, inner = item_of(inner), inner.child()
            if inner.getClass().getSimpleName() != "AttributeReference":
                raise DeclarationError(
                    f"{summary.where}: {summary.name}() computes {item.sql()} after its "
                    f"aggregation. {ADVICE}"
                )
            for identity, outcome in found:
                if inner.exprId().equals(identity):
                    place = outcome.item if at is None else at
                    renamed = Outcome(str(item.name()), field or outcome.field, place)
                    kept.append((item.exprId(), renamed))
        found = kept
    return [outcome for _, outcome in found]


def _measure(
    name: str, share: Share, result: DataFrame, summary: Summary
) -> tuple[list[tuple[str, Expression]], dict[str, Column]]:
    """What a record adds to a measure: the expressions to evaluate, and the columns to store."""
    aggregate = share.expression
    function = aggregate.aggregateFunction()
    kind = function.getClass().getSimpleName()
    kind_of = result.schema[name].dataType
    if kind not in MEASURES or aggregate.isDistinct():
        raise DeclarationError(
            f"{summary.where}: {summary.name}(): '{name}' is {aggregate.sql()} of type "
            f"{kind_of.simpleString()}, which is not additive. {ADVICE}"
        )
    if name.endswith(RESERVED):
        endings = " or ".join(f"'{ending}'" for ending in RESERVED)
        raise DeclarationError(
            f"{summary.where}: {summary.name}(): '{name}' ends in {endings}, as the parts of an "
            "average do. Rename it."
        )
    if kind != "Count" and function.child().dataType().typeName() in ("double", "float"):
        raise DeclarationError(_uncast(name, aggregate, summary))
    parts = [(f"{name}__{i}", child) for i, child in enumerate(each(function.children()))]
    given = [(f"{name}__if_{i}", one) for i, one in enumerate(share.conditions)]
    counts = F.lit(True)
    for part, _ in given:
        counts = counts & F.coalesce(F.col(f"`{part}`"), F.lit(False))
    return parts + given, _stored(name, kind, function, counts, kind_of)


def _stored(
    name: str, kind: str, function: Expression, counts: Column, total: DataType | str
) -> dict[str, Column]:
    """The columns of a measure; a record that does not count adds nothing to them."""
    if kind == "Sum":
        return {name: _zero_if_null(name, counts, total)}
    present = counts
    for part in range(function.children().size()):
        present = present & F.col(f"`{name}__{part}`").isNotNull()
    count = F.when(present, 1).otherwise(0).cast("bigint")
    if kind == "Count":
        return {name: count}
    # An average is kept as a sum and a count, which add up; readers divide.
    exact = str(function.child().dataType().simpleString())
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", exact)
    # The type that Spark has for a sum of these.
    total = f"decimal({min(38, int(found[1]) + 10)},{found[2]})" if found else "bigint"
    return {f"{name}{SUM}": _zero_if_null(name, counts, total), f"{name}{COUNT}": count}


def _zero_if_null(name: str, counts: Column, kind: DataType | str) -> Column:
    # Both sides of one type: beside an integer Spark would cut the decimals of a long one.
    value = F.when(counts, F.col(f"`{name}__0`").cast(kind))
    return F.coalesce(value, F.lit(0).cast(kind))


def _uncast(name: str, aggregate: Expression, summary: Summary) -> str:
    """Why a sum or average of doubles is refused, and the line to write instead."""
    function = aggregate.aggregateFunction()
    child = function.child()
    while child.getClass().getSimpleName() == "Cast" and child.dataType().typeName() == "double":
        child = child.child()  # Spark's own, of a float or a text
    text = child.sql().replace("`", "").replace('"', "'")
    plain = re.fullmatch(r"\w+(?:\.\w+)?", text)
    column = f'F.col("{text.rsplit(".", 1)[-1]}")' if plain else f'F.expr("{text}")'
    call = {"Sum": "sum", "Average": "avg"}[function.getClass().getSimpleName()]
    return (
        f"{summary.where}: {summary.name}(): '{name}' is {aggregate.sql()} of type double. Doubles "
        "are rounded, so their sums are not exact. Cast first, with the digits that you need:\n"
        f'    F.{call}({column}.cast("decimal(18,4)")).alias("{name}")\n'
        "or declare the field as a decimal in the schema of the source."
    )


def _key_part(
    outcome: Outcome, inner: Expression, result: DataFrame, summary: Summary
) -> tuple[list[tuple[str, Expression]], dict[str, Column]]:
    """A grouping column as the key stores it: a window as its start and its end."""
    name = outcome.name
    if _aggregates(inner):
        raise DeclarationError(
            f"{summary.where}: {summary.name}(): '{name}' is {inner.sql()}, which is not "
            f"additive. {ADVICE}"
        )
    column, kind = F.col(f"`{name}`"), result.schema[name].dataType
    if outcome.field is not None:
        return [(name, inner)], {name: column.getField(outcome.field)}
    if isinstance(kind, StructType) and tuple(kind.names) == PARTS:
        parts = dict(zip(parts_of(name), PARTS, strict=True))
        if name in summary.key:
            listed = [part for n in summary.key for part in (parts if n == name else [n])]
            raise DeclarationError(
                f"{summary.where}: {summary.name}() groups by the window '{name}', which becomes "
                f"two columns. Write key={listed} and, if you give a time, time='{name}_start'."
            )
        return [(name, inner)], {part: column.getField(one) for part, one in parts.items()}
    if isinstance(kind, StructType | ArrayType | MapType):
        raise DeclarationError(
            f"{summary.where}: {summary.name}() groups by '{name}', which is of type "
            f"{kind.simpleString()}. A key has plain values: group by texts, numbers, dates or "
            f"times{f', such as {name}.{kind.names[0]}' if isinstance(kind, StructType) else ''}."
        )
    return [(name, inner)], {name: column}


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


def _aggregates(expression: Expression) -> bool:
    """Whether an aggregate hides inside an expression."""
    return expression.getClass().getSimpleName() == "AggregateExpression" or any(
        _aggregates(child) for child in each(expression.children())
    )
