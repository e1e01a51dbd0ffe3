"""Where a sink's batches go, and how far it says they went."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tapeline.books.durable import make_folder, replace_file
from tapeline.connect import Console, Files, Foreach, Memory
from tapeline.connect.encode import Row, as_json
from tapeline.errors import OperationError
from tapeline.run.failpoints import reach
from tapeline.run.sinks.outbox import Outgoing, Place
from tapeline.show import plain

OF_THE_MESSAGE = ("_key", "_headers")  # beside the value, where there is a message


class FencedError(OperationError):
    """Another process delivers this sink; this one must not go on."""


class Outlet(Protocol):
    """One sink's way out. Its place is told with what is sent, so that neither is without the
    other, or else after it."""

    def open(self, check: Callable[[Place], None]) -> Place:
        """Through which batch everything was sent; `check` refuses a place of other books."""

    def send(self, batches: Sequence[Outgoing]) -> None:
        """Send what some batches bring, in order; the last one's place is reached."""

    def close(self) -> None:
        """Let go of what is held."""


def value_of(row: Row) -> Row:
    """What of a row is the message's value."""
    value = dict(row)
    for name in OF_THE_MESSAGE:
        value.pop(name, None)
    return value


class PlaceFile:
    """A place on disk, for outlets that cannot keep it themselves."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Place:
        try:
            return Place(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return Place()

    def write(self, place: Place) -> None:
        make_folder(self._path.parent)
        replace_file(self._path, json.dumps(vars(place)).encode())


class CallOutlet:
    """Calls something with the rows of each batch, then notes the place: at least once."""

    def __init__(self, call: Callable[[list[Row], int], Any], place: PlaceFile) -> None:
        self._call = call
        self._place = place

    def open(self, check: Callable[[Place], None]) -> Place:
        return self._place.read()

    def send(self, batches: Sequence[Outgoing]) -> None:
        for one in batches:
            self._call(one.rows, one.place.batch)
            self._place.write(one.place)

    def close(self) -> None:
        pass


class MemoryOutlet:
    """Appends to a list; what is in it says how far it is."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._reached = Place()

    def open(self, check: Callable[[Place], None]) -> Place:
        return self._reached

    def send(self, batches: Sequence[Outgoing]) -> None:
        for one in batches:
            self._memory.rows.extend(one.rows)
            self._reached = one.place

    def close(self) -> None:
        pass


class FilesOutlet:
    """One file per batch, called by its number and put in place whole.

    A batch that is sent again after a crash replaces its file with the same one: exactly once.
    """

    def __init__(self, files: Files, folder: Path, name: str, place: PlaceFile) -> None:
        self._format = files.format
        self._folder = folder
        self._name = name
        self._place = place

    def open(self, check: Callable[[Place], None]) -> Place:
        make_folder(self._folder)
        return self._place.read()

    def send(self, batches: Sequence[Outgoing]) -> None:
        for one in batches:
            name = f"{self._name}-{one.place.batch:012}.{self._format}"
            replace_file(self._folder / name, self._content(one))
            reach("sink_sent")
            self._place.write(one.place)
            reach("sink_committed")

    def close(self) -> None:
        pass

    def _content(self, one: Outgoing) -> bytes:
        rows = [value_of(row) for row in one.rows]
        if self._format == "json":
            return b"".join(as_json(row) + b"\n" for row in rows)
        names = list(dict.fromkeys(name for row in rows for name in row))
        if self._format == "csv":
            return _csv(names, rows)
        known = one.schema
        columns = {
            name: pa.array(
                [row.get(name) for row in rows], known.field(name).type if name in known.names
                else None
            )
            for name in names
        }  # fmt: skip
        out = io.BytesIO()
        pq.write_table(pa.table(columns), out)
        return out.getvalue()


def _csv(names: list[str], rows: list[Row]) -> bytes:
    """Exact values for programs; `tapeline export` writes CSV for spreadsheets."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        cells = (plain(row.get(name)) for name in names)
        writer.writerow(
            json.dumps(cell, ensure_ascii=False) if isinstance(cell, dict | list) else cell
            for cell in cells
        )
    return out.getvalue().encode()


def print_rows(rows: list[Row], batch: int) -> None:
    for row in rows:
        sys.stdout.write(as_json(value_of(row)).decode() + "\n")
    sys.stdout.flush()


def simple_outlet(connector: Any, name: str, folder: Path, place: PlaceFile) -> Outlet:
    """The outlet of everything but topics."""
    if isinstance(connector, Files):
        return FilesOutlet(connector, folder, name, place)
    if isinstance(connector, Memory):
        return MemoryOutlet(connector)
    if isinstance(connector, Foreach):
        return CallOutlet(connector.function, place)
    assert isinstance(connector, Console)
    return CallOutlet(print_rows, place)
