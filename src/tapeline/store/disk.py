"""File operations that survive a crash, and the lock of a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from tapeline.errors import OperationError
from tapeline.store.files import open_lock, sync

COPY_BYTES = 4 * 1024 * 1024
# Never follow a link and never wait for a pipe's other end.
READ_SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def copy_range(
    handle: int, first: int, last: int, target: Path, seen: Callable[[bytes], None] | None = None
) -> None:
    """Copy the bytes of an open file from `first` to just before `last` into a new, synced file."""
    with target.open("wb") as file:
        offset = first
        while offset < last:
            chunk = os.pread(handle, min(COPY_BYTES, last - offset), offset)
            if not chunk:
                raise OSError(errno.EBUSY, "it shrank while it was copied", str(target))
            if seen:
                seen(chunk)
            file.write(chunk)
            offset += len(chunk)
        file.flush()
        os.fsync(file.fileno())


def move(source: Path, target: Path) -> None:
    """Move a file to a name that is free, also to another file system (by way of a copy)."""
    if target.exists():
        raise FileExistsError(errno.EEXIST, "there already is a file of that name", str(target))
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The copy gets its name only when it is complete, so the target's folder holds it first.
        beside = target.with_name(f".{target.name}.part")
        handle = os.open(source, READ_SAFELY)
        try:
            copy_range(handle, 0, os.fstat(handle).st_size, beside)
        finally:
            os.close(handle)
        os.rename(beside, target)
        sync(target.parent)
        os.unlink(source)


def sweep(path: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            sweep(inner)
        os.rmdir(path)
    else:
        os.unlink(path)


class Lease(Enum):
    """What the kernel says about writers of a file."""

    GRANTED = "no process has it open for writing"
    REFUSED = "a process has it open for writing"
    UNKNOWN = "this file system, or this owner, does not say"


def lease(handle: int) -> Lease:
    """Ask for a read lease; it ends when the handle is closed.

    While it is held, whoever opens the file for writing waits.
    """
    set_lease = getattr(fcntl, "F_SETLEASE", None)
    set_signal = getattr(fcntl, "F_SETSIG", None)
    if set_lease is None or set_signal is None:
        return Lease.UNKNOWN
    try:
        # A writer that waits sends SIGIO, which ends a process; SIGURG is ignored by default.
        fcntl.fcntl(handle, set_signal, signal.SIGURG)
        fcntl.fcntl(handle, set_lease, fcntl.F_RDLCK)
    except OSError as error:
        return Lease.REFUSED if error.errno == errno.EAGAIN else Lease.UNKNOWN
    return Lease.GRANTED


def hold(path: Path, what: str) -> int:
    """Lock a file for the life of the process, or until the returned handle is closed."""
    handle = open_lock(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(handle, 100, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(handle)
        raise OperationError(
            f"{what} is in use: {owner} holds {path}. Stop that process first."
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()}\n".encode("ascii"), 0)
    return handle


def release(handle: int) -> None:
    """Give up a lock that `hold` took."""
    os.close(handle)
