"""What rows of the tape say of the Structured Streaming query that they came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tapeline.books.pieces import DeliveryPart
from tapeline.books.tape_batches import deliveries_of
from tapeline.words import counted

if TYPE_CHECKING:
    from tapeline.books.reader import Books

UNPROVED = (
    "What the query did is counted, not proved: Tapeline did not see what it read. From the tape "
    "on everything is proved."
)


@dataclass(frozen=True)
class QueryPosition:
    """What a row of the tape says of the batch it came from."""

    query: str
    batch: int
    number: int  # of the batch among all of the source, whatever the query's id
    dropped: int = 0  # by the watermark, as Spark counts it
    instead_of: str | None = None  # in the first batch after a loss: the query before

    def text(self) -> str:
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(facts)

    @classmethod
    def of(cls, text: str) -> QueryPosition:
        return cls(**json.loads(text))


def dropped_words(rows: int) -> str:
    """What a watermark dropped."""
    return (
        f"the watermark dropped {counted(rows, 'row')} (Spark counts after partial aggregation: "
        "several input rows may count as one)"
    )


def positions(parts: Iterable[DeliveryPart]) -> Iterator[QueryPosition]:
    """The batches of a query that are on the tape, each once, in order."""
    before = None
    for part in parts:
        if part.position is not None and part.position != before:
            before = part.position
            yield QueryPosition.of(part.position)


def unproved(books: Books) -> list[dict[str, Any]]:
    """The sources that are queries: what is known of them, and how far a proof goes."""
    return [
        {"source": name, **_facts(books, name), "words": UNPROVED}
        for name, source in books.plan.pipeline.sources.items()
        if not getattr(source.connector, "proved", True)
    ]


def _facts(books: Books, source: str) -> dict[str, int]:
    found = list(positions(deliveries_of(books.layout, source)))
    return {
        "batches": len(found),
        "dropped_by_watermark": sum(one.dropped for one in found),
        "started_over": sum(one.instead_of is not None for one in found),
    }
