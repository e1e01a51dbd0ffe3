"""An expectation: a sentence, a SQL condition, and what becomes of a row that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from tapeline.declare.where import function_where
from tapeline.errors import DeclarationError

Action = Literal["keep", "drop", "quarantine", "fail"]
Function = TypeVar("Function", bound=Callable[..., object])
ATTRIBUTE = "__tapeline_expectations__"
DECLARED = "__tapeline_declared__"  # "table" or "summary", once a pipeline knows the function


@dataclass(frozen=True)
class Expectation:
    """What should hold for every row of a table, and what becomes of a row that breaks it.

    It is written above a function, or in the list `expect` of a step in SQL.
    """

    sentence: str
    condition: str
    action: Action

    def __call__(self, function: Function) -> Function:
        """Attach it to a function, as a decorator does."""
        if getattr(function, DECLARED, None):
            raise DeclarationError(
                f"{function_where(function)}: the expectation '{self.sentence}' of "
                f"{function.__name__}() is above @pipeline.{getattr(function, DECLARED)}, where it "
                "has no effect. Put it below, next to the function."
            )
        # Decorators apply from the bottom up: putting each in front keeps the order of reading.
        known = getattr(function, ATTRIBUTE, ())
        setattr(function, ATTRIBUTE, (self, *known))
        return function


def expect(sentence: str, condition: str) -> Expectation:
    """A row that breaks it is kept, and counted."""
    return Expectation(sentence, condition, "keep")


def expect_or_drop(sentence: str, condition: str) -> Expectation:
    """A record that breaks it is dropped, and counted."""
    return Expectation(sentence, condition, "drop")


def expect_or_quarantine(sentence: str, condition: str) -> Expectation:
    """A record that breaks it waits in quarantine with its reasons."""
    return Expectation(sentence, condition, "quarantine")


def expect_or_fail(sentence: str, condition: str) -> Expectation:
    """A record that breaks it stops the flow before anything of its batch is decided."""
    return Expectation(sentence, condition, "fail")
