"""A pivot taken apart: which record has a share in which of the columns that it makes.

Spark adds up by key and by the column of the pivot, and then puts the sums of each listed value
into a column of its own. A record's share in such a column is its share in the sum, if it has that
value.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tapeline.spark.internals import Expression, PlanNode, each, has_value


@dataclass(frozen=True)
class Share:
    """A column of an aggregation, and the conditions under which a record counts in it."""

    expression: Expression
    when: tuple[Expression, ...] = ()

    @property
    def conditions(self) -> tuple[Expression, ...]:
        """With that of FILTER (WHERE ...), which belongs to the aggregate itself."""
        own = self.expression.filter()
        return (*self.when, own.get()) if own.isDefined() else self.when


@dataclass(frozen=True)
class Pivot:
    """The two aggregations that Spark makes of a pivot."""

    frame: DataFrame
    inner: PlanNode

    @property
    def child(self) -> PlanNode:
        """The rows that are added up."""
        return self.inner.child()

    def share(self, expression: Expression, item: int | None) -> Share:
        """What a column of the outer aggregation adds up, in terms of the rows."""
        if expression.getClass().getSimpleName() != "AggregateExpression" or item is None:
            return Share(self._below(expression))
        function = expression.aggregateFunction()
        column = self._below(function.pivotColumn())
        value = function.pivotColumnValues().apply(item)
        wanted = has_value(self.frame.sparkSession, column, value)
        return Share(self._below(function.valueColumn()), (wanted,))

    def _below(self, expression: Expression) -> Expression:
        """The expression that makes a column of the inner aggregation."""
        for one in each(self.inner.aggregateExpressions()):
            if one.exprId().equals(expression.exprId()):
                return unaliased(one)
        return expression


def pivot_of(frame: DataFrame, aggregate: PlanNode) -> Pivot | None:
    """The pivot that an aggregation belongs to."""
    expressions = [unaliased(one) for one in each(aggregate.aggregateExpressions())]
    found = [e for e in expressions if e.getClass().getSimpleName() == "AggregateExpression"]
    kinds = {e.aggregateFunction().getClass().getSimpleName() for e in found}
    return Pivot(frame, aggregate.child()) if kinds == {"PivotFirst"} else None


def unaliased(expression: Expression) -> Expression:
    """What is under a column's name."""
    return expression.child() if expression.nodeName() == "Alias" else expression
