"""A sink: what leaves, as a plain function over what one batch brought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tapeline.declare.destination import Destination
from tapeline.declare.signature import about, annotated, last_name
from tapeline.declare.where import Where
from tapeline.errors import DeclarationError

if TYPE_CHECKING:
    from tapeline.settings import Settings

    Rows = list[dict[str, Any]]
    Changes = list[dict[str, Any]]
    Alerts = list[dict[str, Any]]
else:

    class Rows:
        """In a sink's signature: the rows of a table that a batch brought or took back."""

    class Changes:
        """In a sink's signature: the numbers of a summary or view that a batch changed."""

    class Alerts:
        """In a sink's signature: what a batch raised and closed of an alert."""


Kind = Literal["rows", "changes", "alerts"]
KINDS: dict[str, Kind] = {"Rows": "rows", "Changes": "changes", "Alerts": "alerts"}


@dataclass(frozen=True)
class Sink:
    """A named function that says what of each published batch goes to a connector."""

    name: str
    function: Callable[..., Any]
    connector: Any
    reads: str
    kind: Kind
    where: Where

    def destination(self) -> Destination:
        """What sends: a connector makes one, a destination of the user's own is one."""
        make = getattr(self.connector, "destination", None)
        found: Destination = make() if make else self.connector
        return found

    def check(self, settings: Settings) -> str:
        """What its destination says of itself; nothing if the user's own does not say."""
        check: Any = getattr(self.destination(), "check", None)  # of a CheckedDestination
        return str(check(settings)) if check else ""

    @property
    def about(self) -> str:
        """The first line of the docstring."""
        return about(self.function)


def sink_input(function: Callable[..., Any], where: Where) -> tuple[str, Kind]:
    """What a sink's one parameter names, and how it is read."""
    kinds = [(name, KINDS.get(last_name(text))) for name, text in annotated(function).items()]
    if len(kinds) == 1 and kinds[0][1] is not None:
        return kinds[0][0], kinds[0][1]
    raise DeclarationError(
        f"{where}: {function.__name__}() is a sink. It needs one parameter: a table annotated as "
        "Rows, a summary or view annotated as Changes, or an alert annotated as Alerts."
    )
