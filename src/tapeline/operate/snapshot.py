"""A picture of the books between two batches, made of hard links: it takes a blink and no space.

A running pipeline takes it itself, when asked by a file, while nothing of it writes. Without one,
whoever asks takes it under the pipeline's lock.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from uuid import uuid4

from tapeline.books.commits import read_tail, restored_epoch
from tapeline.books.layout import Layout
from tapeline.errors import OperationError
from tapeline.store.disk import hold
from tapeline.store.files import make_folder, replace_file
from tapeline.store.lock import WriterLock, holder

# Not part of the books: each is made anew, or belongs to one process or one machine.
LEFT_OUT = {"checkpoints", "snapshots", "log", "status.json", "pulling.json", "audited.json",
            "paused.json"}  # fmt: skip
ARCHIVES = {"archive", "rejected"}
# Everything else is written once, or replaced as a whole: a link is as good as a copy.
APPENDED = {".jsonl"}
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
        _sweep(layout.snapshots)
        yield
    finally:
        os.close(lock)


def _lock(layout: Layout, patient: bool) -> int | None:
    """The backup's lock, which the kernel frees when its process dies; None while it is held."""
    try:
        return hold(layout.home / ".lock.backup", "the books' backup")
    except OperationError:
        if patient:
            return None
        raise


def _sweep(folder: Path) -> None:
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def picture(layout: Layout, archives: bool) -> Path:
    """The folder of a picture; the caller, who holds the right to take it, removes it."""
    folder = layout.snapshots / uuid4().hex
    make_folder(folder)
    if holder(layout.home) is None:
        lock = WriterLock(layout.home)
        try:
            link_all(layout, folder, archives)
        finally:
            lock.release()
    else:
        _ask(layout, folder, archives)
    return folder


def _ask(layout: Layout, folder: Path, archives: bool) -> None:
    """Let the process that runs take the picture."""
    asked, answer = folder.with_suffix(".asked"), folder.with_suffix(".answer")
    replace_file(asked, json.dumps({"archives": archives}).encode())
    deadline = time.monotonic() + WAIT_SECONDS
    while not answer.exists():
        if time.monotonic() > deadline or holder(layout.home) is None:
            asked.unlink(missing_ok=True)
            raise OperationError(
                "the running pipeline did not make its snapshot in time. See 'tapeline status', "
                "and try again."
            )
        time.sleep(POLL_SECONDS)
    problem = json.loads(answer.read_text())["problem"]
    answer.unlink()
    if problem:
        raise OperationError(f"the running pipeline could not make its snapshot: {problem}")


def answer_all(layout: Layout, still: Callable[[], AbstractContextManager[None]]) -> int:
    """Take the pictures that other processes ask for; `still` keeps everything from writing.

    What lies there while no backup is at work is of one that was killed.
    """
    if not layout.snapshots.exists() or not any(layout.snapshots.iterdir()):
        return 0
    if (lock := _lock(layout, patient=True)) is not None:
        _sweep(layout.snapshots)
        os.close(lock)
        return 0
    asked = sorted(layout.snapshots.glob("*.asked"))
    for path in asked:
        problem = None
        try:
            with still():
                link_all(layout, path.with_suffix(""), json.loads(path.read_text())["archives"])
        except (OSError, ValueError, KeyError) as error:
            problem = str(error)
        path.unlink(missing_ok=True)
        replace_file(path.with_suffix(".answer"), json.dumps({"problem": problem}).encode())
    return len(asked)


def link_all(layout: Layout, folder: Path, archives: bool) -> None:
    """Link what is there, and copy what is written to in place."""
    for source in _logs_first(layout.home, archives):
        target = folder / source.relative_to(layout.home)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if source.suffix in APPENDED:
                shutil.copy2(source, target)
            else:
                os.link(source, target)
        except FileNotFoundError:
            continue  # a reader's scratch file; of a table's, the audit would say so


def _logs_first(home: Path, archives: bool) -> Iterator[Path]:
    """All files; a table's log before its files, which are there before its log names them."""
    logs: list[Path] = []
    others: list[Path] = []
    for place, folders, names in os.walk(home):
        here = Path(place)
        left_out = LEFT_OUT if here == home else set()
        if not archives and here.parent == home / "intake":
            left_out = ARCHIVES
        folders[:] = [name for name in folders if name not in left_out]
        files = [n for n in names if n not in left_out and not n.startswith(".lock")]
        (logs if here.name == "_delta_log" else others).extend(here / name for name in files)
    yield from logs
    yield from others


def stands_at(home: Path) -> tuple[int, str, int]:
    """The last published batch of some books, its hash and its epoch."""
    rows = read_tail(Layout(home).commits)
    published = {row.batch for row in rows if row.publishes}
    decided = [row for row in rows if row.decides and row.batch in published]
    if not decided:
        return 0, "", max(1, restored_epoch(home))
    last = decided[-1]
    return last.batch, last.hash, max(last.epoch, restored_epoch(home))
