"""The position of a sink in the folder of the books."""

from __future__ import annotations

import json
from pathlib import Path

from tapeline.declare.destination import SinkPosition
from tapeline.store.files import make_folder, replace_file


class PositionFile:
    """A position on disk, for destinations that cannot keep it themselves."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> SinkPosition:
        try:
            return SinkPosition(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return SinkPosition()

    def write(self, position: SinkPosition) -> None:
        make_folder(self._path.parent)
        replace_file(self._path, json.dumps(vars(position)).encode())
