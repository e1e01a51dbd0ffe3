"""A destination: where the rows of a sink go, and how far it says they went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tapeline.errors import OperationError

if TYPE_CHECKING:
    import pyarrow as pa

    from tapeline.settings import Settings

Row = dict[str, Any]
OF_THE_MESSAGE = ("_key", "_headers")  # beside the value, where there is a message


class FencedError(OperationError):
    """Another process delivers this sink; this one must stop."""


@dataclass(frozen=True)
class SinkPosition:
    """Everything up to this batch was sent. `hash` tells the books apart that sent it."""

    batch: int = 0
    hash: str = ""


@dataclass(frozen=True)
class SinkBatch:
    """What one batch sends. `schema` has the types of the columns that came from the books."""

    position: SinkPosition
    rows: list[Row]
    schema: pa.Schema

    @property
    def values(self) -> list[Row]:
        """The rows without the key and headers of a message."""
        return [value_of(row) for row in self.rows]


def value_of(row: Row) -> Row:
    """What of a row is the message's value."""
    value = dict(row)
    for name in OF_THE_MESSAGE:
        value.pop(name, None)
    return value


class NotedPosition(Protocol):
    """A position in the folder of the books, for destinations that cannot keep one themselves."""

    def read(self) -> SinkPosition: ...

    def write(self, position: SinkPosition) -> None: ...


@dataclass(frozen=True)
class SinkContext:
    """What a destination is told when it is opened."""

    pipeline: str
    sink: str
    settings: Settings
    noted: NotedPosition
    refuse_other_books: Callable[[SinkPosition], None]  # raises if other books sent so far


class Destination(Protocol):
    """Where the rows of one sink go. One thread uses it, and opens it again after an error.

    A destination that stores its position together with the rows, so that neither is there without
    the other, gets every batch exactly once. One that stores it after the rows gets a batch again
    if the process dies in between.
    """

    @property
    def goes_to(self) -> str:
        """What a plan and the status show."""

    def open(self, sink: SinkContext) -> None:
        """Connect, and undo what a process left behind that died while it was sending."""

    def position(self) -> SinkPosition:
        """The last batch that was sent completely; SinkPosition() before the first."""

    def send(self, batches: Sequence[SinkBatch]) -> None:
        """Send some batches in order, and store the position of the last one."""

    def close(self) -> None:
        """Disconnect. Called also when `open` failed, or twice."""


class CheckedDestination(Destination, Protocol):
    """A destination that `tapeline doctor` can ask."""

    def check(self, settings: Settings) -> str:
        """One line about it. Raises TapelineError if it cannot be reached.

        It is not opened for this, and sends nothing.
        """
