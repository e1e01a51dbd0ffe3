"""What must survive a power cut."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
    """Create a folder durably, with missing parents; only this user can read it."""
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


def create_private(path: Path, text: str) -> None:
    """Write a new file that only this user can read. Raises FileExistsError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with open(handle, "w", encoding="ascii") as file:
        file.write(text)


def is_private(path: Path) -> bool:
    """Whether only this user can read or write a file."""
    return not path.stat().st_mode & 0o077


def keep_private() -> None:
    """From now on this process, and those it starts, make files for this user alone."""
    before = os.umask(0o077)
    _callers_umask.append(before)


def share(path: Path) -> None:
    """Give a file or folder that is meant for others the mode that the user's umask gives it."""
    if _callers_umask:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~_callers_umask[0])


@contextmanager
def replacing(
    path: Path, shared: bool = False, lasting: bool = True, work: Path | None = None
) -> Iterator[Path]:
    """A new name. What is written to it takes a file's place, whole or not at all.

    `lasting`: it survives a power cut; `shared` as in `share`; `work` is a folder of the same file
    system for the new name, which is beside the file by default.
    """
    partial = (work or path.parent) / f".{path.name}.{os.getpid()}"
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


def replace_file(
    path: Path,
    content: bytes,
    shared: bool = False,
    lasting: bool = True,
    work: Path | None = None,
) -> None:
    """Put a small file in its place, as `replacing` does."""
    with replacing(path, shared, lasting, work) as partial:
        partial.write_bytes(content)


def replace_json(path: Path, value: Any) -> None:
    """Replace a small JSON file durably."""
    replace_file(path, json.dumps(value).encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that nobody else knows yet, such as one that `replacing` gave."""
    path.write_bytes(content)


def read_bytes(path: Path) -> bytes:
    """A file's content. Raises FileNotFoundError and other OSErrors."""
    return path.read_bytes()


def read_text(path: Path) -> str:
    """A file's content, which is UTF-8. Raises OSError, or ValueError if it is not."""
    return path.read_text(encoding="utf-8")


def read_json(path: Path) -> Any:
    """What a JSON file holds. Raises OSError, or ValueError if it is not JSON."""
    return json.loads(path.read_bytes())


def remove(path: Path) -> None:
    """Remove a file that may be missing."""
    path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, as far as possible."""
    shutil.rmtree(path, ignore_errors=True)


def empty_folder(path: Path) -> None:
    """Remove what is in a folder, as far as possible."""
    for inner in path.iterdir() if path.exists() else ():
        if inner.is_dir():
            remove_folder(inner)
        else:
            remove(inner)


def is_empty(folder: Path) -> bool:
    """Whether a folder is missing, or has nothing in it."""
    return not folder.exists() or not any(folder.iterdir())


def files_named(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder whose names match, in order."""
    return sorted(folder.glob(pattern))


def is_folder(path: Path) -> bool:
    return path.is_dir()


def first_line(path: Path) -> bytes:
    """The first line of a file, with its end."""
    with path.open("rb") as file:
        return file.readline()


def is_there(path: Path) -> bool:
    """Whether there is a file or folder of this name."""
    return path.exists()


def stamp(path: Path) -> tuple[int, int]:
    """When a file was last changed, in nanoseconds, and its size. Raises OSError."""
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size


def each_file(folder: Path, see: Callable[[Path, int], None]) -> None:
    """Every file below a folder, with its size; a file of two names counts once."""
    seen: set[tuple[int, int]] = set()
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue  # housekeeping was quicker
            if (facts.st_dev, facts.st_ino) not in seen:
                seen.add((facts.st_dev, facts.st_ino))
                see(path, facts.st_size)


def bytes_below(folder: Path, enough: int) -> int:
    """The sizes of the files below a folder, added up until there is enough."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += Path(place, name).lstat().st_size
            if found > enough:
                return found
    return found
