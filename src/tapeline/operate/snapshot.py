"""A picture of the books between two batches, made of hard links: it takes a blink and no space.

A running pipeline takes it itself, when asked by a file, while nothing of it writes. Without one,
whoever asks takes it under the pipeline's lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePath
from uuid import uuid4

from tapeline.books.commits import read_tail, restored_epoch
from tapeline.books.layout import Layout
from tapeline.errors import OperationError
from tapeline.store.copies import link_files
from tapeline.store.disk import hold, release
from tapeline.store.files import (
    empty_folder,
    files_named,
    is_empty,
    is_there,
    make_folder,
    read_json,
    remove,
    replace_json,
)
from tapeline.store.lock import WriterLock, holder

# Not part of the books: each is made again, or belongs to one process or one machine.
LEFT_OUT = {"checkpoints", "snapshots", "log", "status.json", "pulling.json", "audited.json",
            "paused.json", "alerts.json"}  # fmt: skip
ARCHIVES = {"archive", "rejected"}
WAIT_SECONDS = 120.0
POLL_SECONDS = 0.05
BACKUP_WAIT_SECONDS = 2.0  # a run that sweeps holds the backup's lock for a blink


@contextmanager
def one_backup(layout: Layout) -> Iterator[None]:
    """The right to take pictures of these books; what a backup left that was killed is removed."""
    deadline = time.monotonic() + BACKUP_WAIT_SECONDS
    while (lock := _lock(layout, patient=time.monotonic() < deadline)) is None:
        time.sleep(POLL_SECONDS)
    try:
        empty_folder(layout.snapshots)
        yield
    finally:
        release(lock)


def _lock(layout: Layout, patient: bool) -> int | None:
    """The backup's lock, which the kernel frees when its process dies; None while it is held."""
    try:
        return hold(layout.home / ".lock.backup", "the books' backup")
    except OperationError:
        if patient:
            return None
        raise


def picture(layout: Layout, archives: bool) -> Path:
    """The folder of a picture; the caller, who holds the right to take it, removes it."""
    folder = layout.snapshots / uuid4().hex
    make_folder(folder)
    if holder(layout.home) is None:
        lock = WriterLock(layout.home)
        try:
            link_files(layout.home, folder, _left_out(archives))
        finally:
            lock.release()
    else:
        _ask(layout, folder, archives)
    return folder


def _ask(layout: Layout, folder: Path, archives: bool) -> None:
    """Let the process that runs take the picture."""
    asked, answer = folder.with_suffix(".asked"), folder.with_suffix(".answer")
    replace_json(asked, {"archives": archives})
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_there(answer):
        if time.monotonic() > deadline or holder(layout.home) is None:
            remove(asked)
            raise OperationError(
                "the running pipeline did not make its snapshot in time. See 'tapeline status', "
                "and try again."
            )
        time.sleep(POLL_SECONDS)
    problem = read_json(answer)["problem"]
    remove(answer)
    if problem:
        raise OperationError(f"the running pipeline could not make its snapshot: {problem}")


def answer_all(layout: Layout, still: Callable[[], AbstractContextManager[None]]) -> int:
    """Take the pictures that other processes ask for; `still` keeps everything from writing.

    What is there while no backup is running was left by one that was killed.
    """
    if is_empty(layout.snapshots):
        return 0
    if (lock := _lock(layout, patient=True)) is not None:
        empty_folder(layout.snapshots)
        release(lock)
        return 0
    asked = files_named(layout.snapshots, "*.asked")
    for path in asked:
        problem = None
        try:
            with still():
                left_out = _left_out(read_json(path)["archives"])
                link_files(layout.home, path.with_suffix(""), left_out)
        except (OSError, ValueError, KeyError) as error:
            problem = str(error)
        remove(path)
        replace_json(path.with_suffix(".answer"), {"problem": problem})
    return len(asked)


def _left_out(archives: bool) -> Callable[[PurePath], bool]:
    """Whether a folder or file, by its path below the books, is no part of a picture."""

    def left_out(path: PurePath) -> bool:
        if path.name.startswith(".lock") or str(path) in LEFT_OUT:
            return True
        inner = len(path.parts) == 3 and path.parts[0] == "intake"
        return inner and not archives and path.name in ARCHIVES

    return left_out


def stands_at(home: Path) -> tuple[int, str, int]:
    """The last published batch of some books, its hash and its epoch."""
    rows = read_tail(Layout(home).commits)
    published = {row.batch for row in rows if row.publishes}
    decided = [row for row in rows if row.decides and row.batch in published]
    if not decided:
        return 0, "", max(1, restored_epoch(home))
    last = decided[-1]
    return last.batch, last.hash, max(last.epoch, restored_epoch(home))
