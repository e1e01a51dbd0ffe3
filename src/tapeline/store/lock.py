"""One writer per pipeline: a lock held by Python, and one inside the JVM.

On a local disk the tables have no mutual exclusion of their own. The kernel frees the lock of a
process that dies and keeps that of one that is only stopped, so no clock is involved. The JVM
outlives a killed Python for a moment, so it holds a lock of its own. Libraries for file locks do
not say who holds one; this file names the process and the machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tapeline.errors import OperationError
from tapeline.store.files import make_folder, open_lock

JVM_WAIT_SECONDS = 15.0
ATTEMPTS = 5
ATTEMPT_SECONDS = 0.05


class WriterLock:
    """The right to write a pipeline's books, for the life of the process."""

    def __init__(self, home: Path) -> None:
        self._path = home / ".lock"
        self._jvm_path = home / ".lock.jvm"
        try:
            make_folder(home)
            self._file = os.fdopen(open_lock(self._path), "r+")
            os.close(open_lock(self._jvm_path))  # or Java would make it, for anybody
        except OSError as error:
            raise OperationError(
                f"the books cannot be written to {home}: {error.strerror or error}. Correct the "
                "setting 'root' or --root, or give this user write access."
            ) from None
        self._channel: Any = None
        if not self._take():
            self._file.seek(0)
            said = self._file.read().strip() or "unknown"
            self._file.close()
            raise OperationError(
                f"ALREADY_RUNNING: another process writes to {home}: {said}. Stop it first with "
                "'tapeline stop', or use another root."
            )
        self._file.seek(0)
        self._file.truncate(0)
        self._file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        self._file.flush()

    def _take(self) -> bool:
        """A moment of patience: whoever asks for the holder has the lock for a blink."""
        for _ in range(ATTEMPTS):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(ATTEMPT_SECONDS)
            else:
                return True
        return False

    def enter_jvm(self, session: Any) -> None:
        """Take the JVM's lock; waits for the JVM of a process that was killed a moment ago."""
        jvm = session.sparkContext._jvm
        self._channel = jvm.java.io.RandomAccessFile(str(self._jvm_path), "rw").getChannel()
        deadline = time.monotonic() + JVM_WAIT_SECONDS
        while self._channel.tryLock() is None:
            if time.monotonic() > deadline:
                raise OperationError(
                    f"ALREADY_RUNNING: the JVM of an earlier process still holds {self._jvm_path}. "
                    "Stop that java process, then start again."
                )
            time.sleep(0.2)

    def release(self) -> None:
        if self._channel is not None:
            self._channel.close()
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait for a lock that many processes take in turn, each for a moment."""
    with os.fdopen(open_lock(path), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def holder(home: Path) -> dict[str, Any] | None:
    """Who writes a pipeline's books now; None when nobody does."""
    try:
        with (home / ".lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _said(file.read())
    except FileNotFoundError:
        pass
    return None


def _said(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}  # it is just being written
    return found


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # One that nobody has waited for is dead all the same.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True  # this system does not say
