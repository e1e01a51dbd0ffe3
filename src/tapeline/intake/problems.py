"""What intake noticed and somebody should know: an append-only file of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

# One older file is kept beside the current one.
FILE_BYTES = 1024 * 1024
# How many findings are remembered so as not to be repeated at every pass.
REMEMBERED = 100_000


class ProblemLog:
    """Writes findings, each as {at, kind, name, detail}, to a file that cannot grow for ever."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._clock = clock
        self._said: dict[str, str] = {}

    def add(self, kind: str, name: str, detail: str) -> None:
        """Write a finding."""
        at = self._clock().isoformat()
        line = json.dumps({"at": at, "kind": kind, "name": name, "detail": detail})
        with self._path.open("a", encoding="ascii") as file:
            file.write(f"{line}\n")
            full = file.tell() > FILE_BYTES
        if full:
            os.replace(self._path, self._path.with_suffix(".old.jsonl"))

    def once(self, kind: str, name: str, detail: str) -> None:
        """Write a finding unless one of this kind is the last that was written of this name."""
        if self._said.pop(name, None) == kind:
            self._said[name] = kind
            return
        self._said[name] = kind
        if len(self._said) > REMEMBERED:
            del self._said[next(iter(self._said))]
        self.add(kind, name, detail)

    def forget(self, name: str) -> None:
        """A file of this name was accepted: the next of that name is another matter."""
        self._said.pop(name, None)
