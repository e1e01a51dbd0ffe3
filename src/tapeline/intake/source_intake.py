"""What the loop asks of the intake of one source, whatever it takes from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from tapeline.books.status import QueryStatus
from tapeline.books.status_file import PartitionLag


class SourceIntake(Protocol):
    """Brings the records of one source onto its tape. One thread takes."""

    rounds: int  # how often all of the source was looked at
    answer_seconds: float = 0.0  # how long an answer of the other side may take
    has_read: bool = True  # whether the other side has ever let us in
    to_the_end: bool = False  # whether the run ends when all that is there was taken

    def take(self) -> int:
        """Take what is there once; the number of pieces that came on the tape."""

    def waiting(self) -> tuple[int, int]:
        """What can be seen and is not on the tape: how many files or messages, and bytes."""

    def still(self) -> AbstractContextManager[None]:
        """No writes while this context is open."""

    def settle(self) -> None:
        """Put away what is on the tape, before a run ends."""
        return

    def close(self) -> None:
        """Let go of the other side."""

    @property
    def dropped(self) -> tuple[int, int] | None:
        """Files that wait in a drop folder, and their bytes; None where there is no folder."""
        return None

    @property
    def query(self) -> QueryStatus | None:
        """How far a Structured Streaming query is; None of other sources."""
        return None

    def look_again(self) -> bool:
        """Look for the end again at the next take; whether something hides records until then."""
        return False

    def partitions(self, booked: int, now: datetime) -> Mapping[str, PartitionLag]:
        """The lag of the books, by partition of the other side."""
        return {}
