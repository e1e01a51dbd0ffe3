"""The checkpoint of a query: whose it is, and whether it goes with what is on the tape.

A checkpoint is state. Spark runs the last batch of one again with the same input, so a batch that
is on the tape is known by its query and batch id. Any other checkpoint cuts batches elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tapeline.books.pieces import DeliveryPart
from tapeline.errors import OperationError
from tapeline.store.files import (
    files_named,
    is_there,
    make_folder,
    read_json,
    remove_folder,
    replace_json,
)
from tapeline.words import counted

State = Literal["new", "ok", "lost", "behind", "foreign"]
WORDS = {
    "lost": "CHECKPOINT_LOST: {source}: the checkpoint of its query is gone from {folder}",
    "behind": "CHECKPOINT_BEHIND: {source}: the checkpoint in {folder} is older than the tape, "
    "which has batch {batch} of its query",
    "foreign": "FOREIGN_CHECKPOINT: {source}: the checkpoint in {folder} belongs to another query",
}
REMEDY = (
    "Restore the books from a backup. Or set intake.lost_checkpoint = 'start_over': the query then "
    "starts over with a new id and empty state, and everything that its sources still have comes "
    "again; what a table with a key has counted counts once."
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


@dataclass(frozen=True)
class Checkpoint:
    """The folder of a source's query: Spark's checkpoint, and our note whose it is."""

    source: str
    home: Path

    @property
    def folder(self) -> Path:
        return self.home / "checkpoint"

    @property
    def _note(self) -> Path:
        return self.home / "query.json"

    def state(self, last: QueryPosition | None) -> State:
        """How the checkpoint goes with the last batch on the tape."""
        found, noted = self._id(), self._noted()
        expected = noted or (last.query if last else None)
        if found is None:
            return "new" if expected is None else "lost"
        if expected is not None and found != expected and is_there(self._note):
            return "foreign" if noted or last else "ok"
        if last is not None and found == last.query and self._newest() < last.batch:
            return "behind"
        return "ok"

    def error(self, state: State, last: QueryPosition | None) -> OperationError:
        words, remedy = self.words(state, last)
        return OperationError(f"{words}. {remedy}")

    def words(self, state: State, last: QueryPosition | None) -> tuple[str, str]:
        """What is wrong with the checkpoint, and what to do."""
        batch = last.batch if last else 0
        words = WORDS[state].format(source=self.source, folder=self.folder, batch=batch)
        put_back = "Put the right one back, or remove it. " if state == "foreign" else ""
        return words, f"{put_back}{REMEDY}"

    def begin(self) -> None:
        """Make room for the checkpoint of a new query."""
        remove_folder(self.home)
        make_folder(self.home)
        replace_json(self._note, {"query": None})

    def note(self, query: str) -> None:
        """Note whose checkpoint it is; Spark has written its id."""
        if self._noted() != query:
            replace_json(self._note, {"query": query})

    def _noted(self) -> str | None:
        return _read(self._note).get("query")

    def _id(self) -> str | None:
        return _read(self.folder / "metadata").get("id")

    def _newest(self) -> int:
        """The last batch whose input Spark has written down; -1 before the first."""
        names = (path.name for path in files_named(self.folder / "offsets", "*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)


def _read(path: Path) -> dict[str, str | None]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
