"""Backups: the books as they stood between two batches, proved by an audit of the copy.

A backup is a folder with the books and a manifest: the batch, the hash of its commits row, and the
SHA-256 of every file. Restoring begins a new epoch, so that what was published after the backup
can be told from what is published after the restoration.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from tapeline.books import Books
from tapeline.books.audit import audit
from tapeline.books.layout import Layout
from tapeline.errors import OperationError
from tapeline.operate.snapshot import one_backup, picture, stands_at
from tapeline.store.files import make_folder, replace_file, sync
from tapeline.store.lock import holder

MANIFEST = "manifest.json"
BOOKS = "books"
CHUNK_BYTES = 1024 * 1024
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Backup:
    """What a backup holds."""

    pipeline: str
    batch: int
    hash: str
    epoch: int
    at: str
    archives: bool
    files: dict[str, tuple[int, str]]  # size and SHA-256 by path

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())

    def facts(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "files"} | {
            "files": len(self.files),
            "bytes": self.bytes,
        }


def back_up(
    books: Books, into: Path, at: datetime, archives: bool, progress: Progress
) -> tuple[Path, Backup]:
    """Copy the books into a new folder below `into`, and prove the copy; a run may go on."""
    if into.absolute().is_relative_to(books.layout.home):
        raise OperationError(f"{into} is inside the books. Choose another folder for backups.")
    if not books.layout.commits.exists():
        raise OperationError(
            f"there are no books in {books.layout.home} to back up. Run the pipeline first, or "
            "correct --root."
        )
    with one_backup(books.layout):
        partial = into / _partial_name(books)
        shutil.rmtree(partial, ignore_errors=True)  # of a backup that was killed
        taken = picture(books.layout, archives)
        try:
            make_folder(partial)
            files = dict(_copied(taken, partial / BOOKS, progress))
            batch, link, epoch = stands_at(partial / BOOKS)
            made = Backup(books.plan.name, batch, link, epoch, at.isoformat(), archives, files)
            replace_file(partial / MANIFEST, json.dumps(asdict(made)).encode())
            _prove(Books(books.plan, partial / BOOKS))
            folder = into / f"{books.plan.name}-{batch:012}-{at:%Y%m%dT%H%M%S}"
            partial.rename(folder)
            sync(into)
        finally:
            shutil.rmtree(taken, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)
    return folder, made


def _partial_name(books: Books) -> str:
    """A backup at work; the same for the same books of the same machine, so that it is found."""
    whose = f"{socket.gethostname()}:{books.layout.home.absolute()}"
    return f".{books.plan.name}-{hashlib.sha256(whose.encode()).hexdigest()[:12]}.partial"


def restore(books: Books, backup: Path, progress: Progress) -> Backup:
    """Put a backup in the place of books that are not there, and prove them."""
    home = books.layout.home
    made = read_manifest(backup)
    if made.pipeline != books.plan.name:
        raise OperationError(
            f"{backup} is a backup of pipeline '{made.pipeline}', not '{books.plan.name}'. Choose "
            "another backup."
        )
    if holder(home) is not None:
        raise OperationError("the pipeline is running. Stop it first with 'tapeline stop'.")
    if home.exists() and any(home.iterdir()):
        raise OperationError(
            f"{home} already contains books, and a restore never overwrites. Move them away first."
        )
    partial = home.with_name(f".{home.name}.restoring")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        make_folder(partial)
        _refuse_damage(made, dict(_copied(backup / BOOKS, partial, progress)), backup)
        epoch = {"epoch": made.epoch + 1, "batch": made.batch, "backup_at": made.at}
        replace_file(Layout(partial).restored, json.dumps(epoch).encode())
        _prove(Books(books.plan, partial))
        if home.exists():
            home.rmdir()
        partial.rename(home)
        sync(home.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return made


def read_manifest(backup: Path) -> Backup:
    """What a backup says it holds."""
    try:
        facts = json.loads((backup / MANIFEST).read_text())
        facts["files"] = {name: (int(s), str(h)) for name, (s, h) in facts["files"].items()}
        made = Backup(**facts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise OperationError(
            f"{backup} is not a backup: it has no readable {MANIFEST}. Give the folder that "
            "'tapeline backup' printed."
        ) from None
    return made


def _copied(
    source: Path, target: Path, progress: Progress
) -> Iterator[tuple[str, tuple[int, str]]]:
    """Copy every file, to stay, and say its size and hash."""
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


def _refuse_damage(made: Backup, found: dict[str, tuple[int, str]], backup: Path) -> None:
    for name in sorted({*made.files, *found}):
        if made.files.get(name) != found.get(name):
            raise OperationError(
                f"{backup} is damaged: {name} does not match its manifest. Use another backup."
            )


def _prove(copy: Books) -> None:
    wrong = [check for check in audit(copy, full=True) if not check.balances]
    copy.layout.audited.unlink(missing_ok=True)
    if wrong:
        first = wrong[0]
        raise OperationError(
            f"the copy does not balance: {first.what}: expected {first.expected}, found "
            f"{first.found}{first.first}. Run 'tapeline audit --full' on the books."
        )
