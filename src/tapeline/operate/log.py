"""The log of a run: one line per event, for people or for machines, in files that never grow.

It says what happened and where, never what a record holds. A disk that is full costs lines, not
the run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from tapeline.settings import LogSettings
from tapeline.store.files import make_folder

RUN_LOG = "run.log"
PULL_LOG = "pull.log"  # of a process of its own: two cannot put one file aside


class Log:
    """Writes events to a file that is put aside when it is full."""

    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        clock: Callable[[], datetime],
        name: str = RUN_LOG,
    ) -> None:
        self._clock = clock
        self._json = settings.format == "json"
        make_folder(folder)
        self._handler = _Quiet(
            folder / name,
            maxBytes=settings.file_megabytes * 1024 * 1024,
            backupCount=settings.files - 1,
            encoding="utf-8",
            delay=True,
        )

    def say(self, event: str, **facts: Any) -> None:
        """One event, with what there is to know about it."""
        at = self._clock().isoformat(timespec="milliseconds")
        if self._json:
            line = json.dumps({"at": at, "event": event, **facts}, default=str)
        else:
            line = " ".join([at, event, *(f"{k}={_shown(v)}" for k, v in facts.items())])
        self._handler.handle(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        self._handler.close()


class _Quiet(RotatingFileHandler):
    """A line that cannot be written is let go."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        pass


def _shown(value: Any) -> str:
    """A value on one line; text with blanks in quotes."""
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)
