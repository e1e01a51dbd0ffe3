"""Copies of whole folders: linked in a blink for a picture, or byte by byte for a backup."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath, PurePosixPath

from tapeline.store.files import make_folder, sync

CHUNK_BYTES = 1024 * 1024
# Everything else is written once, or replaced as a whole: a link is as good as a copy.
APPENDED = {".jsonl"}
Progress = Callable[[int, int], None]


def link_files(source: Path, target: Path, left_out: Callable[[PurePath], bool]) -> None:
    """Link what is in a folder, and copy what is written to in place.

    `left_out` is asked for every file and folder, by its path below the source.
    """
    for path in _logs_first(source, left_out):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            if path.suffix in APPENDED:
                shutil.copy2(path, copy)
            else:
                os.link(path, copy)
        except FileNotFoundError:
            continue  # a reader's scratch file; of a table's, the audit would say so


def _logs_first(home: Path, left_out: Callable[[PurePath], bool]) -> Iterator[Path]:
    """All files; a table's log before its files, which are there before its log names them."""
    logs: list[Path] = []
    others: list[Path] = []
    for place, folders, names in os.walk(home):
        here = PurePath(place).relative_to(home)
        folders[:] = [name for name in folders if not left_out(here / name)]
        files = [Path(place, name) for name in names if not left_out(here / name)]
        (logs if here.name == "_delta_log" else others).extend(files)
    yield from logs
    yield from others


def copy_files(
    source: Path, target: Path, progress: Progress
) -> Iterator[tuple[str, tuple[int, str]]]:
    """Copy every file durably. Yields its size and SHA-256."""
    paths = sorted(p for p in source.rglob("*") if p.is_file() and not p.is_symlink())
    total, done = sum(p.stat().st_size for p in paths), 0
    made: set[Path] = set()
    for path in paths:
        name = path.relative_to(source)
        copy = target / name
        if copy.parent not in made:
            make_folder(copy.parent)
            made.add(copy.parent)
        digest = hashlib.sha256()
        with path.open("rb") as given, copy.open("wb") as taken:
            while chunk := given.read(CHUNK_BYTES):
                digest.update(chunk)
                taken.write(chunk)
            taken.flush()
            os.fsync(taken.fileno())
        size = copy.stat().st_size
        done += size
        progress(done, total)
        yield str(PurePosixPath(name)), (size, digest.hexdigest())
    for folder in made:
        sync(folder)


def rename_folder(source: Path, target: Path) -> None:
    """Rename a folder durably; an empty folder of that name is replaced."""
    if target.exists():
        target.rmdir()
    source.rename(target)
    sync(target.parent)
