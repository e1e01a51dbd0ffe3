"""Where Spark would cut digits without being told: found on a step's analysed plan.

Spark's decimals have 38 digits. An exact product, sum or difference may need more; then Spark
keeps the digits before the point and rounds those after it. A cast or a round that the user wrote
says where to round, and is fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from tapeline.spark.internals import Expression, ScalaSeq, each, written_cast

EVERYTHING = -1  # a cast that keeps no digit to speak of, such as one to double
NOTHING = 1_000
ARITHMETIC = {"Add", "Subtract", "Multiply"}
ROUNDS = {"Round", "BRound", "Ceil", "Floor", "RoundCeil", "RoundFloor"}
FLOATS = ("double", "float")
MOST_DIGITS = 38


class Digits:
    """Looks for cut digits in analysed expressions."""

    def __init__(self, session: SparkSession) -> None:
        self._written = written_cast(session)

    def cuts(self, expressions: ScalaSeq[Expression]) -> list[str]:
        """A sentence for each expression of a node of the plan in which Spark would cut digits."""
        found: list[str] = []
        for expression in each(expressions):
            found += self._cuts(expression, NOTHING, "")
        return list(dict.fromkeys(found))

    def _cuts(self, expression: Expression, rounded: int, parent: str) -> Iterator[str]:
        """`rounded` is the number of decimals to which the user rounds what is looked at."""
        name = expression.getClass().getSimpleName()
        children = each(expression.children())
        written = name == "Cast" and bool(expression.getTagValue(self._written).isDefined())
        words = ""
        if name in ARITHMETIC:
            words = _cut_by_arithmetic(expression, name, children)
        elif name == "Cast" and not written:
            words = _cut_by_cast(expression, children[0], parent)
        if words and not _told(expression, rounded):
            yield words
            return  # what it is made of is cut for the same reason
        if written or name in ROUNDS:
            rounded = min(rounded, _decimals(expression))
        for child in children:
            yield from self._cuts(child, rounded, name)


def _cut_by_arithmetic(expression: Expression, name: str, children: list[Expression]) -> str:
    """What a product, sum or difference loses, in a sentence; empty if nothing."""
    if not all(_is_decimal(one) for one in (expression, *children)):
        return ""
    (whole, decimals), kept = _needed(name, *map(_size, children)), _size(expression)[1]
    if kept >= decimals:
        return ""
    return (
        f"{expression.sql()} needs {whole + decimals} digits, {decimals} of them decimals. Spark "
        f"has {MOST_DIGITS} and would round to {kept} decimals. Cast its inputs to fewer digits, "
        "for example .cast('decimal(18,6)'), or say where to round the result: "
        f".cast('decimal({MOST_DIGITS},{kept})')."
    )


def _cut_by_cast(expression: Expression, inner: Expression, parent: str) -> str:
    """What is lost by a cast that Spark put there to bring two sides to one type."""
    if not _is_decimal(inner):
        return ""
    kind = str(expression.dataType().simpleString())
    if parent in ARITHMETIC and kind in FLOATS:
        return (
            f"{inner.sql()} is a decimal and becomes a {kind}, which is not exact. Write the other "
            "number as a decimal, for example F.lit(Decimal('1.5')), or cast explicitly: "
            f".cast('{kind}')."
        )
    if _is_decimal(expression) and _size(expression)[1] < _size(inner)[1]:
        return (
            f"{inner.sql()} is a {inner.dataType().simpleString()} and becomes a {kind}, to have "
            "the same type as the other value: decimals are cut off. Cast both to one type, or say "
            f"where to round: .cast('{kind}')."
        )
    return ""


def _needed(name: str, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Digits before and after the point of an exact result."""
    (one_digits, one_scale), (other_digits, other_scale) = one, other
    wholes = one_digits - one_scale, other_digits - other_scale
    if name == "Multiply":
        return sum(wholes) + 1, one_scale + other_scale
    return max(wholes) + 1, max(one_scale, other_scale)


def _told(expression: Expression, rounded: int) -> bool:
    """Whether the user rounds to no more decimals than the expression still has."""
    if rounded == EVERYTHING:
        return True
    kept = _size(expression)[1] if _is_decimal(expression) else NOTHING - 1
    return rounded <= kept


def _decimals(expression: Expression) -> int:
    """How many decimals something that the user wrote leaves."""
    if _is_decimal(expression):
        return _size(expression)[1]
    kind = str(expression.dataType().simpleString())
    if kind in FLOATS:
        return EVERYTHING
    return 0 if kind in ("tinyint", "smallint", "int", "bigint") else NOTHING


def _is_decimal(expression: Expression) -> bool:
    return str(expression.dataType().simpleString()).startswith("decimal(")


def _size(expression: Expression) -> tuple[int, int]:
    """Digits and decimals of an expression's type."""
    kind = expression.dataType()
    return int(kind.precision()), int(kind.scale())
