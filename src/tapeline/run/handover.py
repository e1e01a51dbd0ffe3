"""Handing pages over to a drop folder, each exactly once, together with the position behind them.

A page is written under a hidden name, which intake leaves alone. One file then names both the page
and the position behind it: this decides. The page's rename to its own name is what hands it over,
and it can happen only once: a page that is decided and still has its hidden name is owed, one that
has none was handed over, whether or not intake has taken it since. So nothing is asked for twice
that was decided, and nothing shows in the drop folder that was not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from tapeline.books.durable import make_folder, replace_file, sync
from tapeline.connect.pulling import Position
from tapeline.errors import OperationError
from tapeline.run.failpoints import reach

DIGITS = 12
SERIES_LETTERS = 8


@dataclass(frozen=True)
class Stands:
    """Where a pull stands: what it asks, the position behind the last page, and that page's name.

    `series` keeps the names of a pull that began anew apart from those of the one before.
    """

    asks: str
    series: str
    position: Position | None = None
    page: str = ""
    files: int = 0
    records: int = 0


class Handover:
    """The pages of one pull on their way into the drop folder. One process at a time has it."""

    def __init__(self, path: Path, drop: Path, asks: str) -> None:
        make_folder(path.parent)
        make_folder(drop)
        self._path = path
        self._drop = drop
        self._owed = True
        self.stands = self._read() or Stands(asks, uuid4().hex[:SERIES_LETTERS])
        if self.stands.asks != asks:
            raise OperationError(
                f"{path} is the position of '{self.stands.asks}', but the pull asks for '{asks}' "
                "now. Declare this one under another name; or remove that file to begin anew, and "
                "all its records come again."
            )

    def finish(self) -> None:
        """Hand over what is decided and still owed."""
        if self._owed and self.stands.page:
            hidden = self._hidden(self.stands.page)
            if hidden.exists():
                os.rename(hidden, self._drop / self.stands.page)
                sync(self._drop)
        self._owed = False

    def deliver(self, lines: Sequence[bytes], position: Position | None) -> None:
        """Hand a page over, and stand behind it from now on."""
        self.finish()
        if not lines and position == self.stands.position:
            return
        stands = replace(self.stands, position=position, page="")
        if lines:
            files = self.stands.files + 1
            name = f"{self._path.stem}-{self.stands.series}-{files:0{DIGITS}d}.jsonl"
            records = self.stands.records + len(lines)
            stands = replace(stands, page=name, files=files, records=records)
            self._write_hidden(name, lines)
        reach("pull_written")
        replace_file(self._path, json.dumps(asdict(stands)).encode())
        self.stands, self._owed = stands, True
        reach("pull_decided")
        self.finish()
        reach("pull_delivered")

    def waiting(self, most: int) -> int:
        """Files in the drop folder that nobody has taken yet, as far as `most`."""
        count = 0
        with os.scandir(self._drop) as entries:
            for entry in entries:
                count += not entry.name.startswith(".")
                if count >= most:
                    break
        return count

    def _write_hidden(self, name: str, lines: Sequence[bytes]) -> None:
        # A page that was never decided has left the same name behind: it is written over.
        with self._hidden(name).open("wb") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        sync(self._drop)

    def _hidden(self, name: str) -> Path:
        return self._drop / f".{name}.part"

    def _read(self) -> Stands | None:
        try:
            said: dict[str, Any] = json.loads(self._path.read_bytes())
            return Stands(**said)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise OperationError(
                f"{self._path} is damaged. Restore it from a backup; or remove it to begin anew, "
                "and all its records come again."
            ) from None
