"""Handing pages over to a drop folder, each exactly once, together with the position after them.

A page is written under a hidden name, which intake leaves alone. One file then names both the page
and the position after it: this decides. The page's rename to its own name is what hands it over,
and it can happen only once: a page that is decided and still has its hidden name is owed, one that
has none was handed over, whether or not intake has taken it since. So nothing is asked for twice
that was decided, and nothing shows in the drop folder that was not.

The drop folder is in no backup. Intake's own folder is, so a page that has left the drop folder is
in every later one. `safe` is the position after the last such page; restored books go back to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from tapeline.connect.pulling import Position
from tapeline.errors import OperationError
from tapeline.failpoints import hit
from tapeline.store.files import make_folder, make_shared_folder, replace_file, sync
from tapeline.store.recovery import Recovery

DIGITS = 12
SERIES_LETTERS = 8


@dataclass(frozen=True)
class PullState:
    """The state of a pull: what it asks, the position after the last page, and that page's name.

    `waiting` are pages that were in the drop folder when last seen, each with the position after
    it. `series` keeps the names of a pull that was started over apart from those of the one before.
    """

    asks: str
    epoch: int
    series: str = field(default_factory=lambda: uuid4().hex[:SERIES_LETTERS])
    position: Position | None = None
    page: str = ""
    files: int = 0
    records: int = 0
    safe: Position | None = None
    waiting: Sequence[tuple[str, Position | None]] = ()


class Handover:
    """The pages of one pull on their way into the drop folder. One process at a time has it."""

    def __init__(self, path: Path, drop: Path, asks: str, epoch: int) -> None:
        make_folder(path.parent)
        make_shared_folder(drop)
        self._path = path
        self._drop = drop
        self._recovery = Recovery(self._recover)
        self.stands = self._read() or PullState(asks, epoch)
        if self.stands.asks != asks:
            raise OperationError(
                f"{path} is the position of '{self.stands.asks}', but the pull now asks for "
                f"'{asks}'. Give the pull another name; or remove that file to start over, which "
                "sends all its records again."
            )
        if self.stands.epoch != epoch:
            self._go_back(epoch)

    def finish(self) -> None:
        """Hand over what is decided and still owed, after a start or an error."""
        self._recovery.ensure()

    def _recover(self) -> None:
        self.stands = self._read() or self.stands
        sync(self._path.parent)
        self._hand_over()

    def deliver(self, lines: Sequence[bytes], position: Position | None) -> None:
        """Hand a page over, and move the position past it."""
        self.finish()
        if not lines and position == self.stands.position:
            return
        with self._recovery.step():
            stands = replace(self._seen(), position=position, page="")
            if lines:
                stands = self._with_page(stands, lines)
            hit("pull_written")
            replace_file(self._path, _text(stands))
            hit("pull_decided")
            self.stands = stands
            self._hand_over()
        hit("pull_delivered")

    def files_ahead(self, most: int) -> int:
        """Files in the drop folder that nobody has taken yet, as far as `most`."""
        count = 0
        with os.scandir(self._drop) as entries:
            for entry in entries:
                count += not entry.name.startswith(".")
                if count >= most:
                    break
        return count

    def _hand_over(self) -> None:
        hidden = self._hidden(self.stands.page)
        if self.stands.page and hidden.exists():
            os.rename(hidden, self._drop / self.stands.page)
            sync(self._drop)

    def _with_page(self, stands: PullState, lines: Sequence[bytes]) -> PullState:
        """Write a page under its hidden name. One that was never decided is written over."""
        files = stands.files + 1
        name = f"{self._path.stem}-{stands.series}-{files:0{DIGITS}d}.jsonl"
        with self._hidden(name).open("wb") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        sync(self._drop)
        waiting = (*stands.waiting, (name, stands.position))
        records = stands.records + len(lines)
        return replace(stands, page=name, files=files, records=records, waiting=waiting)

    def _seen(self) -> PullState:
        """Where it stands, with the pages forgotten that have left the drop folder, in order."""
        safe, waiting = self.stands.safe, list(self.stands.waiting)
        while waiting and not (self._drop / waiting[0][0]).exists():
            safe = waiting.pop(0)[1]
        return replace(self.stands, safe=safe, waiting=waiting)

    def _go_back(self, epoch: int) -> None:
        """The books were restored from a backup: what may not be in it comes again."""
        self._hidden(self.stands.page).unlink(missing_ok=True)
        stands = PullState(self.stands.asks, epoch)
        self.stands = replace(
            stands,
            position=self.stands.safe,
            safe=self.stands.safe,
            files=self.stands.files,
            records=self.stands.records,
        )
        replace_file(self._path, _text(self.stands))

    def _hidden(self, name: str) -> Path:
        return self._drop / f".{name}.part"

    def _read(self) -> PullState | None:
        try:
            said: dict[str, Any] = json.loads(self._path.read_bytes())
            said["waiting"] = tuple((name, position) for name, position in said["waiting"])
            return PullState(**said)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            raise OperationError(
                f"{self._path} is damaged. Restore it from a backup; or remove it to start over, "
                "which sends all its records again."
            ) from None


def _text(stands: PullState) -> bytes:
    return json.dumps(asdict(stands)).encode()
