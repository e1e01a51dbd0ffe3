"""Destinations without a server: files, a list, and a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tapeline.declare.destination import Row, SinkBatch, SinkContext, SinkPosition, value_of
from tapeline.declare.format import Format
from tapeline.failpoints import hit
from tapeline.formats.json import Json
from tapeline.store.files import make_shared_folder, replace_file
from tapeline.terminal import json_escaped


class NotedDestination:
    """A destination whose position is noted in the books' folder."""

    _context: SinkContext

    def __init__(self, goes_to: str) -> None:
        self.goes_to = goes_to

    def open(self, sink: SinkContext) -> None:
        self._context = sink

    def position(self) -> SinkPosition:
        return self._context.noted.read()

    def close(self) -> None:
        pass


class CallDestination(NotedDestination):
    """Calls something with the rows of each batch, then notes the position: at least once."""

    def __init__(self, goes_to: str, call: Callable[[list[Row], int], Any]) -> None:
        super().__init__(goes_to)
        self._call = call

    def send(self, batches: Sequence[SinkBatch]) -> None:
        for one in batches:
            self._call(one.rows, one.position.batch)
            self._context.noted.write(one.position)


class FilesDestination(NotedDestination):
    """One file per batch, called by its number and put in place whole.

    A batch that is sent again after a crash replaces its file with the same one: exactly once.
    """

    def __init__(self, goes_to: str, path: str, written: Format) -> None:
        super().__init__(goes_to)
        self._path = path
        self._format = written
        self._folder = Path(path)

    def open(self, sink: SinkContext) -> None:
        super().open(sink)
        self._folder = sink.settings.within(self._path)
        make_shared_folder(self._folder)

    def send(self, batches: Sequence[SinkBatch]) -> None:
        for one in batches:
            name = f"{self._context.sink}-{one.position.batch:012}.{self._format.name}"
            content = self._format.encode_file(one.values, one.schema)
            replace_file(self._folder / name, content, shared=True)
            hit("sink_sent")
            self._context.noted.write(one.position)
            hit("sink_committed")


class MemoryDestination:
    """Appends rows to a list; its position is in memory only."""

    def __init__(self, goes_to: str, rows: list[Row]) -> None:
        self.goes_to = goes_to
        self._rows = rows
        self._reached = SinkPosition()

    def open(self, sink: SinkContext) -> None:
        pass

    def position(self) -> SinkPosition:
        return self._reached

    def send(self, batches: Sequence[SinkBatch]) -> None:
        for one in batches:
            self._rows.extend(one.rows)
            self._reached = one.position

    def close(self) -> None:
        pass


def print_rows(rows: list[Row], batch: int) -> None:
    """One line of JSON per row."""
    for row in rows:
        sys.stdout.write(json_escaped(Json().encode(value_of(row)).decode()) + "\n")
    sys.stdout.flush()
