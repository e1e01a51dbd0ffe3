"""The checkpoint of a query: whose it is, and whether it goes with what is on the tape.

A checkpoint is state. Spark runs the last batch of one again with the same input, so a batch that
is on the tape is known by its query and batch id. Any other checkpoint cuts batches elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tapeline.books.query_position import QueryPosition
from tapeline.errors import OperationError
from tapeline.store.files import (
    files_named,
    make_folder,
    read_json,
    remove_folder,
    replace_json,
)

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
        found, note = _read(self.folder / "metadata").get("id"), _read(self._note)
        if "query" in note and note["query"] is None:
            return "new" if found is None else "ok"  # begun, and not noted yet
        expected = note.get("query") or (last.query if last else None)
        if found is None:
            return "new" if expected is None else "lost"
        if expected is not None and found != expected:
            return "foreign"
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
        if _read(self._note).get("query") != query:
            replace_json(self._note, {"query": query})

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
