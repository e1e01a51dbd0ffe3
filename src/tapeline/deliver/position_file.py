"""The position of a sink in the folder of the books."""

from __future__ import annotations

from pathlib import Path

from tapeline.declare.destination import SinkPosition
from tapeline.store.files import make_folder, read_json, replace_json


class PositionFile:
    """A position on disk, for destinations that cannot keep it themselves."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> SinkPosition:
        try:
            return SinkPosition(**read_json(self._path))
        except FileNotFoundError:
            return SinkPosition()

    def write(self, position: SinkPosition) -> None:
        make_folder(self._path.parent)
        replace_json(self._path, vars(position))
