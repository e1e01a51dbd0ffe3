"""An alert: a sentence, and a condition on every row of a table, summary or view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tapeline.declare.signature import about, annotated, last_name
from tapeline.declare.where import Where
from tapeline.errors import DeclarationError

if TYPE_CHECKING:
    Each = dict[str, Any]
else:

    class Each:
        """In an alert's signature: one row of a table or view, or one number of a summary."""


Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True)
class Alert:
    """Raised when its condition begins to hold for a key, closed when it holds no more."""

    name: str
    function: Callable[..., Any]
    reads: str
    severity: Severity
    where: Where

    @property
    def about(self) -> str:
        """The sentence: the first line of the docstring."""
        return about(self.function)


def alert_of(function: Callable[..., Any], severity: Severity, where: Where) -> Alert:
    """The alert that a function declares: its one parameter names what it looks at."""
    name = function.__name__
    if severity not in get_args(Severity):
        raise DeclarationError(
            f"{where}: {name}() has the severity '{severity}'. Use one of "
            f"{', '.join(get_args(Severity))}."
        )
    said = annotated(function)
    if [last_name(text) for text in said.values()] != ["Each"]:
        raise DeclarationError(
            f"{where}: {name}() is an alert. It needs one parameter, a table, summary or view "
            "annotated as Each, and returns whether the alert is active for that row."
        )
    return Alert(name, function, next(iter(said)), severity, where)
