"""Which files were renamed into a folder, as the kernel (inotify) tells it.

File times cannot tell: they tick every few milliseconds, and a small file is written and renamed
within one tick. Where the kernel does not tell either, files wait until they have settled.
Libraries that watch folders hide the difference between "created" and "moved to", which is all that
matters here.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator

IN_MODIFY = 0x00000002
IN_MOVED_TO = 0x00000080
IN_CREATE = 0x00000100
IN_IGNORED = 0x00008000
EVENT = struct.Struct("iIII")
EVENTS_BYTES = 256 * 1024
REMEMBERED_FILES = 100_000


class Renames:
    """Files that came into watched folders by a rename, and were not written since."""

    def __init__(self) -> None:
        self._renamed: dict[bytes, None] = {}
        self._folders: dict[int, bytes] = {}
        self._queue = -1
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._queue = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (AttributeError, OSError):
            pass  # not Linux: nothing is ever known

    def watch(self, folder: int, prefix: bytes) -> None:
        """Watch an open folder; `prefix` is what its files' paths begin with."""
        if self._queue >= 0:
            path = b"/proc/self/fd/%d" % folder
            mask = IN_MODIFY | IN_MOVED_TO | IN_CREATE
            number = self._libc.inotify_add_watch(self._queue, path, mask)
            if number >= 0:
                self._folders[number] = prefix

    def collect(self) -> None:
        """Learn what happened since the last call."""
        for mask, path in self._events():
            self._renamed.pop(path, None)
            if mask & IN_MOVED_TO:
                self._renamed[path] = None
                if len(self._renamed) > REMEMBERED_FILES:
                    del self._renamed[next(iter(self._renamed))]

    def has(self, path: bytes) -> bool:
        """Whether a file is known to have come by a rename, as its last change."""
        return path in self._renamed

    def forget(self, path: bytes) -> None:
        """The file was taken: the next of that name is another one."""
        self._renamed.pop(path, None)

    def close(self) -> None:
        """Stop watching."""
        if self._queue >= 0:
            os.close(self._queue)
            self._queue = -1

    def _events(self) -> Iterator[tuple[int, bytes]]:
        while self._queue >= 0:
            try:
                data = os.read(self._queue, EVENTS_BYTES)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(data):
                number, mask, _, length = EVENT.unpack_from(data, offset)
                offset += EVENT.size + length
                if mask & IN_IGNORED:
                    self._folders.pop(number, None)
                elif number in self._folders:
                    name = data[offset - length : offset].rstrip(b"\0")
                    yield mask, self._folders[number] + name
