"""Files that intake could not read: kept in rejected/, each with a note beside it.

What somebody decided about such a file, to retry or to dismiss it, is written into its note.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tapeline.books.layout import Layout
from tapeline.books.quarantine import Actor, user
from tapeline.errors import OperationError
from tapeline.store.files import files_named, read_json, replace_json, stamp
from tapeline.store.lock import alone

DIGITS = 12
FILES_PER_FOLDER = 1_000
RETRY, DISMISS = "retried", "dismissed"
# Of more rejected files, the oldest are looked at no more: nobody has decided about them for long.
MOST_LOOKED_AT = 10_000


def numbered(folder: Path, number: int) -> Path:
    """The path of a numbered file in a folder that is divided so that none gets huge."""
    return folder / f"{number // FILES_PER_FOLDER:0{DIGITS - 3}d}" / f"{number:0{DIGITS}d}"


def beside(path: Path) -> Path:
    """The path of the note about a file."""
    return path.with_name(f"{path.name}.json")


@dataclass(frozen=True)
class Decided:
    """What somebody decided about a rejected file."""

    act: str
    who: str
    at: str
    note: str = ""


@dataclass(frozen=True)
class RejectedFile:
    """A file that intake could not read, and why."""

    source: str
    number: int
    name: str
    size: int
    at: datetime
    reason: str
    path: Path
    decided: Decided | None = None

    @property
    def id(self) -> str:
        return f"{self.source}:rejected:{self.number}"


class RejectedFiles:
    """The rejected files of one source."""

    def __init__(self, layout: Layout, source: str) -> None:
        self._source = source
        self._home = layout.intake(source)
        self._known: dict[Path, tuple[tuple[int, int], RejectedFile]] = {}

    def newest_first(self) -> Iterator[RejectedFile]:
        """All of them that have a note that can be read."""
        for folder in reversed(files_named(self._home / "rejected", "*")):
            for note in reversed(files_named(folder, "*.json")):
                found = self._read(note)
                if found is not None:
                    yield found

    def undecided(self) -> list[RejectedFile]:
        """Those that nobody has retried or dismissed, newest first."""
        looked = zip(range(MOST_LOOKED_AT), self.newest_first(), strict=False)
        return [one for _, one in looked if one.decided is None]

    def get(self, number: int) -> RejectedFile | None:
        return self._read(beside(numbered(self._home / "rejected", number)))

    def decide(self, number: int, act: str, signed: Actor) -> RejectedFile:
        """Record what somebody decided, once."""
        note = beside(numbered(self._home / "rejected", number))
        with alone(self._home / ".lock.rejected"):
            found = self._read(note)
            if found is None or found.decided:
                done = found.decided if found else None
                was = f"was already {done.act} by {done.who} at {done.at}" if done else "is gone"
                raise OperationError(f"{self._source}:rejected:{number} {was}.")
            who = signed.who or user()
            decided = Decided(act, who, signed.at.isoformat(), signed.note)
            replace_json(note, {**read_json(note), "decided": vars(decided)})
        return self._read(note) or found

    def _read(self, note: Path) -> RejectedFile | None:
        """What a note says; notes that did not change are not read again."""
        try:
            mark = stamp(note)
            known = self._known.get(note)
            if known is None or known[0] != mark:
                known = self._known[note] = mark, self._file(note, read_json(note), mark)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known[1]

    def _file(self, note: Path, said: dict[str, Any], mark: tuple[int, int]) -> RejectedFile:
        taken = said.get("taken_at")
        at = datetime.fromisoformat(taken) if taken else datetime.fromtimestamp(mark[0] / 1e9, UTC)
        decided = said.get("decided")
        return RejectedFile(
            self._source,
            int(said["rejected_as"]),
            str(said["name"]),
            int(said["size"]),
            at,
            str(said["reason"]),
            note.with_suffix(""),
            Decided(**decided) if decided else None,
        )
