"""What must survive a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
_callers_umask: list[int] = []  # what it was before `keep_private`


def sync(path: Path) -> None:
    """Make a file's content, or a folder's entries, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, to stay; for this user alone."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        sync(path.parent)


def make_shared_folder(path: Path) -> None:
    """The same for a folder that others write to or read from: the umask of the user decides."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        share(folder)
        sync(folder.parent)


def open_lock(path: Path) -> int:
    """Open a file to lock it, and make it if it is missing: no other user may hold it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    with suppress(PermissionError):  # of another user: it is theirs to close
        os.fchmod(handle, PRIVATE_FILE)
    return handle


def keep_private() -> None:
    """From now on this process, and those it starts, make files for this user alone."""
    before = os.umask(0o077)
    _callers_umask.append(before)


def share(path: Path) -> None:
    """Give a file or folder that is meant for others the mode that the user's umask gives it."""
    if _callers_umask:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~_callers_umask[0])


@contextmanager
def replacing(path: Path, shared: bool = False, lasting: bool = True) -> Iterator[Path]:
    """A name beside a file. What is written to it takes the file's place, whole or not at all.

    `lasting`: it survives a power cut; `shared` as of `share`.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        if lasting:
            sync(partial)
        if shared:
            share(partial)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    if lasting:
        sync(path.parent)


def replace_file(path: Path, content: bytes, shared: bool = False, lasting: bool = True) -> None:
    """Put a small file in its place, as `replacing` does."""
    with replacing(path, shared, lasting) as partial:
        partial.write_bytes(content)
