"""Publishing pieces: all of a group or none, each exactly once, in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from tapeline.books.pieces import PieceFacts, PiecePart, describe, write_piece
from tapeline.errors import OperationError
from tapeline.store.disk import sweep
from tapeline.store.files import sync

DIGITS = 12
MILLISECOND_NS = 1_000_000


class Shelf:
    """The folder accepted/, where pieces appear whole and in order, and the work before it.

    Pieces are written to work/staged. Renaming that to work/decided decides: from then on they
    are only linked into accepted/, by `finish` or, after a crash, by `recover`.
    """

    def __init__(self, home: Path) -> None:
        self.last_piece = 0
        self._accepted = home / "accepted"
        self._work = home / "work"
        self._staged = self._work / "staged"
        self._decided = self._work / "decided"
        self._ready: list[PieceFacts] = []
        self._newest_ms = 0
        for folder in (self._accepted, self._work):
            folder.mkdir(exist_ok=True)

    def recover(self, last_piece: int) -> list[PieceFacts]:
        """Finish what was decided, sweep what was not; the pieces above `last_piece`, in order."""
        self.last_piece = last_piece
        self._ready = []
        for path in self._work.iterdir():
            if path != self._decided:
                sweep(path)
        # Read what is decided before it can be seen, and removed, by whoever follows accepted/.
        decided = _pieces(self._decided) if self._decided.exists() else {}
        found = {number: describe(path) for number, path in decided.items()}
        self.finish()
        for number, path in _pieces(self._accepted).items():
            self.last_piece = max(self.last_piece, number)
            with suppress(FileNotFoundError):
                self._newest_ms = max(self._newest_ms, path.stat().st_mtime_ns // MILLISECOND_NS)
                if number > last_piece and number not in found:
                    found[number] = describe(path)
        return [found[number] for number in sorted(found) if number > last_piece]

    def stage(self, parts: Sequence[PiecePart], arrived_at: datetime) -> None:
        """Write the next piece of the group, unseen."""
        if not self._ready:
            self._staged.mkdir()
        number = self.last_piece + len(self._ready) + 1
        path = self._staged / _name(number)
        self._ready.append(write_piece(path, number, arrived_at, parts))
        self._keep_order(path)

    def discard(self) -> None:
        """Drop the group."""
        if self._ready:
            sweep(self._staged)
            self._ready = []

    def decide(self) -> list[PieceFacts]:
        """Make sure that the group will be published, whatever happens now."""
        sync(self._staged)
        os.rename(self._staged, self._decided)
        facts, self._ready = self._ready, []
        sync(self._work)
        return facts

    def finish(self) -> None:
        """Make what is decided visible."""
        decided = _pieces(self._decided) if self._decided.exists() else {}
        for number, path in decided.items():
            if number > self.last_piece:
                self._link(path, self._accepted / _name(number))
                self.last_piece = number
        if decided:
            sync(self._accepted)
        if self._decided.exists():
            sweep(self._decided)

    def _link(self, path: Path, target: Path) -> None:
        try:
            os.link(path, target)
        except FileExistsError:
            if not target.samefile(path):
                raise OperationError(
                    f"{target} already exists and differs from intake's own {path}. If another "
                    "program wrote it, move it away and start again."
                ) from None

    def _keep_order(self, path: Path) -> None:
        """Give each piece a later time than the one before, in milliseconds.

        Spark's file source follows that order, and clocks tick slowly and go back.
        """
        milliseconds = path.stat().st_mtime_ns // MILLISECOND_NS
        if milliseconds <= self._newest_ms:
            milliseconds = self._newest_ms + 1
            os.utime(path, ns=(milliseconds * MILLISECOND_NS,) * 2)
        self._newest_ms = milliseconds


def _name(number: int) -> str:
    return f"{number:0{DIGITS}d}.parquet"


def _pieces(folder: Path) -> dict[int, Path]:
    """The pieces in a folder by number, in order."""
    found = {int(path.stem): path for path in folder.glob("*.parquet") if path.stem.isdigit()}
    return dict(sorted(found.items()))
