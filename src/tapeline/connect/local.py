"""Sinks within the process: the console, a list, and a function of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tapeline.connect.destinations import CallDestination, MemoryDestination, print_rows
from tapeline.declare.destination import Destination

Row = dict[str, Any]


@dataclass(frozen=True)
class Console:
    """One line of JSON per row on standard output. Delivers: at least once."""

    @property
    def goes_to(self) -> str:
        return "the console"

    def destination(self) -> Destination:
        return CallDestination(self.goes_to, print_rows)


@dataclass(frozen=True)
class Memory:
    """A list of what was sent, for tests: `rows`. Delivers: each batch once per process."""

    rows: list[Row] = field(default_factory=list)

    @property
    def goes_to(self) -> str:
        return "memory"

    def destination(self) -> Destination:
        return MemoryDestination(self.goes_to, self.rows)


@dataclass(frozen=True)
class Foreach:
    """A function of the user's own, called with the rows of a batch and the batch's number.

    Delivers: at least once. The same batch always has the same number and the same rows, so the
    function can tell a repeat.
    """

    function: Callable[[list[Row], int], Any]

    @property
    def goes_to(self) -> str:
        return f"{getattr(self.function, '__name__', 'a function')}()"

    def destination(self) -> Destination:
        return CallDestination(self.goes_to, self.function)
