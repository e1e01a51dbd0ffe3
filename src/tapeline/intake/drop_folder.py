"""The drop folder: what lies in it, and how its files are opened."""

from __future__ import annotations

import errno
import heapq
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tapeline.errors import OperationError
from tapeline.intake.inotify import Renames
from tapeline.intake.problems import ProblemLog
from tapeline.store.disk import READ_SAFELY

FOLDER_DEPTH = 32
# Beyond this many files, `waiting` says "at least".
WAITING_FILES = 10_000
MANIFEST = b".manifest"
# Names senders use for what is not finished, and for manifests, which are read with their file.
UNFINISHED_STARTS = (b".", b"_")
UNFINISHED_ENDS = (b".part", b".tmp", b"._COPYING_", MANIFEST)
NOT_PLAIN = "it is a link, a pipe or a device; only plain files are read"
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Tell = Callable[[str, bytes, str], None]


def shown(name: bytes) -> str:
    """A file's name as text, whatever bytes it is made of."""
    return name.decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Opened:
    """A file in the drop folder: its path there, its own name, its folder's and its own handle.

    `renamed` when it is known that a rename was the last thing that happened to it.
    """

    path: bytes
    name: bytes
    folder: int
    handle: int
    renamed: bool


class DropFolder:
    """The folder senders write to, with all folders below it."""

    def __init__(self, root: Path, findings: ProblemLog) -> None:
        self._root = root
        self._findings = findings
        self._renames = Renames()
        self._walker = _Walker(self._tell, self._renames.watch)
        self._after = b""
        self.rounds = 0  # how often every file has been looked at

    def page(self, limit: int) -> list[bytes]:
        """The next paths to look at, in order of name; at most `limit`, round and round.

        A pass that could not look at everything goes on where the last one ended, so that files
        which wait for something cannot keep the next ones waiting too.
        """
        with closing(_Handles()) as handles:
            found = (
                (path <= self._after, path)
                for path, entry in self._walker.files(self._open_root(handles))
                if self._is_plain(path, entry)
            )
            paths = [path for _, path in heapq.nsmallest(limit, found)]
        self._renames.collect()
        wrapped = len(paths) < limit or paths[-1] <= self._after
        self._after = b"" if len(paths) < limit else paths[-1]
        self.rounds += wrapped
        return paths

    def waiting(self) -> tuple[int, int]:
        """Files in the folder and their bytes, as far as WAITING_FILES."""
        with closing(_Handles()) as handles:
            walked = _Walker(_ignore, _ignore).files(self._open_root(handles))
            plain = (entry for _, entry in walked if entry.is_file(follow_symlinks=False))
            sizes = [_size(entry) for entry in islice(plain, WAITING_FILES)]
        return len(sizes), sum(sizes)

    def forget(self, path: bytes) -> None:
        """The file was taken: the next of that name is another one."""
        self._renames.forget(path)
        self._findings.forget(shown(path))

    def close(self) -> None:
        """Stop watching."""
        self._renames.close()

    @contextmanager
    def opened(self, path: bytes) -> Iterator[Opened | None]:
        """The file, or None (with a finding) when it cannot be opened."""
        with closing(_Handles()) as handles:
            yield self._open(path, handles)

    def _open(self, path: bytes, handles: _Handles) -> Opened | None:
        *folders, name = path.split(b"/")
        folder = self._open_root(handles)
        try:
            for each in folders:
                folder = handles.keep(os.open(each, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder))
            handle = handles.keep(os.open(name, READ_SAFELY, dir_fd=folder))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise
            self._tell(*_refusal(error, path))
            return None
        return Opened(path, name, folder, handle, self._renames.has(path))

    def _open_root(self, handles: _Handles) -> int:
        try:
            return handles.keep(os.open(self._root, OPEN_FOLDER))
        except OSError as error:
            raise OperationError(
                f"the input folder {self._root} cannot be read: {error.strerror}. Create it, mount "
                "it, or give this user read access."
            ) from None

    def _is_plain(self, path: bytes, entry: os.DirEntry[str]) -> bool:
        if not entry.is_file(follow_symlinks=False):
            self._tell("REFUSED", path, NOT_PLAIN)
            return False
        return True

    def _tell(self, kind: str, path: bytes, detail: str) -> None:
        self._findings.once(kind, shown(path), detail)


def entries_in(root: Path, most: int) -> list[tuple[bytes, os.stat_result]]:
    """What lies in a drop folder and is neither a folder nor unfinished; none if it is missing."""
    found: list[tuple[bytes, os.stat_result]] = []
    with suppress(OSError), closing(_Handles()) as handles:
        folder = handles.keep(os.open(root, OPEN_FOLDER))
        for path, entry in islice(_Walker(_ignore, _ignore).files(folder), most):
            with suppress(OSError):  # it was taken in this moment
                found.append((path, entry.stat(follow_symlinks=False)))
    return found


class _Handles:
    """Open handles that are closed together."""

    def __init__(self) -> None:
        self._open: list[int] = []

    def keep(self, handle: int) -> int:
        self._open.append(handle)
        return handle

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())


class _Walker:
    """Walks folders, in no order and never through a link."""

    def __init__(self, tell: Tell, watch: Callable[[int, bytes], None]) -> None:
        self._tell = tell
        self._watch = watch

    def files(
        self, folder: int, prefix: bytes = b"", depth: int = 0
    ) -> Iterator[tuple[bytes, os.DirEntry[str]]]:
        """All that is not a folder, with its path."""
        self._watch(folder, prefix)
        with os.scandir(folder) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if name.startswith(UNFINISHED_STARTS) or name.endswith(UNFINISHED_ENDS):
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    yield prefix + name, entry
                elif depth < FOLDER_DEPTH:
                    yield from self._below(folder, name, prefix + name, depth + 1)
                else:
                    self._tell("REFUSED", prefix + name, f"it is more than {FOLDER_DEPTH} deep")

    def _below(
        self, folder: int, name: bytes, path: bytes, depth: int
    ) -> Iterator[tuple[bytes, os.DirEntry[str]]]:
        try:
            below = os.open(name, OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            self._tell(*_refusal(error, path))
            return
        try:
            yield from self.files(below, path + b"/", depth)
        finally:
            os.close(below)


def _refusal(error: OSError, path: bytes) -> tuple[str, bytes, str]:
    if error.errno == errno.ENOENT:
        return "GONE", path, "it vanished before it could be opened"
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return "REFUSED", path, NOT_PLAIN
    return "UNREADABLE", path, f"it cannot be opened: {error.strerror}"


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _ignore(*_: object) -> None:
    """For walks that only count."""
