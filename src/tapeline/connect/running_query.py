"""What intake asks of a query that runs in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from tapeline.connect.query import Query


@dataclass(frozen=True)
class QueryBatch:
    """What a query made of one micro-batch; Spark commits it when intake says so."""

    query: str  # the id in the checkpoint
    number: int
    rows: pa.Table
    dropped: int = 0  # rows that came later than the watermark, as Spark counts them


@dataclass(frozen=True)
class QueryStart:
    """How a query is to be started."""

    name: str
    query: Query
    checkpoint: Path
    to_the_end: bool = False  # process what is there, then end
    more: Mapping[str, str] = field(default_factory=dict)


class RunningQuery(Protocol):
    """A query at work. It offers one batch at a time and waits until that is done."""

    id: str

    def next(self, seconds: float) -> QueryBatch | None:
        """The batch that waits to be taken. Raises OperationError if the query has failed."""

    def done(self) -> None:
        """The batch is on the tape: Spark may commit it and go on."""

    @property
    def ended(self) -> bool:
        """Whether everything was processed and the query has ended."""

    def stop(self) -> None:
        """End the query. A batch that is not done comes again after the next start."""


class Queries(Protocol):
    """Starts queries."""

    def start(self, what: QueryStart) -> RunningQuery:
        """Start a query, or go on where its checkpoint is."""

    def replays(self, query: Query) -> bool:
        """Whether what it reads can be read again after a restart. A socket cannot."""


class NoQueries:
    """Where nothing runs in Spark."""

    def start(self, what: QueryStart) -> RunningQuery:
        raise NotImplementedError("this run has no Spark for queries")

    def replays(self, query: Query) -> bool:
        return True
