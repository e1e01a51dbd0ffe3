"""A terminal with a shell in it, as a person uses one: type a line, read what comes."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A prompt would stand before the first line of what a command prints.
SIZE = {"COLUMNS": "200", "LINES": "60", "TERM": "dumb"}
NO_PROMPT = {"PS1": "", "PS2": "", "VIRTUAL_ENV_DISABLE_PROMPT": "1"}


class Terminal:
    """A bash on a pseudo terminal. Use it as a context manager."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**environment, **SIZE, **NO_PROMPT},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._number = 0
        self.type("stty -echo")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        self._shell.wait(timeout=60)

    def type(self, line: str, seconds: float = 900) -> tuple[int, str]:
        """Type a line; gives back its exit code and all that was printed."""
        self._number += 1
        mark = f"--typed-{self._number}--"
        os.write(self._ours, f"{line}\necho; echo {mark} $?\n".encode())
        found = re.compile(rf"^{mark} (\d+)\r?$", re.MULTILINE)
        text, deadline = "", time.monotonic() + seconds
        while not (end := found.search(text)):
            if time.monotonic() > deadline:
                raise AssertionError(f"'{line}' did not end. It printed: {text[-2000:]}")
            if select.select([self._ours], [], [], 1)[0]:
                text += os.read(self._ours, 65536).decode(errors="replace")
        return int(end[1]), COLOUR.sub("", text[: end.start()]).replace("\r", "")
