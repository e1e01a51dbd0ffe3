"""Backups: the books as they stood between two batches, proved by an audit of the copy.

A backup is a folder with the books and a manifest: the batch, the hash of its commits row, and the
SHA-256 of every file. Restoring begins a new epoch, so that what was published after the backup
can be told from what is published after the restoration.
"""

from __future__ import annotations

import hashlib
import socket
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tapeline.books import Books
from tapeline.books.audit import audit
from tapeline.books.layout import Layout
from tapeline.errors import OperationError
from tapeline.operate.snapshot import one_backup, picture, stands_at
from tapeline.store.copies import Progress, copy_files, rename_folder
from tapeline.store.files import (
    is_empty,
    is_there,
    make_folder,
    read_json,
    remove,
    remove_folder,
    replace_json,
)
from tapeline.store.lock import holder

MANIFEST = "manifest.json"
BOOKS = "books"


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
    if not is_there(books.layout.commits):
        raise OperationError(
            f"there are no books in {books.layout.home} to back up. Run the pipeline first, or "
            "correct --root."
        )
    with one_backup(books.layout):
        partial = into / _partial_name(books)
        remove_folder(partial)  # of a backup that was killed
        taken = picture(books.layout, archives)
        try:
            make_folder(partial)
            files = dict(copy_files(taken, partial / BOOKS, progress))
            batch, link, epoch = stands_at(partial / BOOKS)
            made = Backup(books.plan.name, batch, link, epoch, at.isoformat(), archives, files)
            replace_json(partial / MANIFEST, asdict(made))
            _prove(Books(books.plan, partial / BOOKS))
            folder = into / f"{books.plan.name}-{batch:012}-{at:%Y%m%dT%H%M%S}"
            rename_folder(partial, folder)
        finally:
            remove_folder(taken)
            remove_folder(partial)
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
    if not is_empty(home):
        raise OperationError(
            f"{home} already contains books, and a restore never overwrites. Move them away first."
        )
    partial = home.with_name(f".{home.name}.restoring")
    remove_folder(partial)
    try:
        make_folder(partial)
        _refuse_damage(made, dict(copy_files(backup / BOOKS, partial, progress)), backup)
        epoch = {"epoch": made.epoch + 1, "batch": made.batch, "backup_at": made.at}
        replace_json(Layout(partial).restored, epoch)
        _prove(Books(books.plan, partial))
        rename_folder(partial, home)
    finally:
        remove_folder(partial)
    return made


def read_manifest(backup: Path) -> Backup:
    """What a backup says it holds."""
    try:
        facts = read_json(backup / MANIFEST)
        facts["files"] = {name: (int(s), str(h)) for name, (s, h) in facts["files"].items()}
        made = Backup(**facts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise OperationError(
            f"{backup} is not a backup: it has no readable {MANIFEST}. Give the folder that "
            "'tapeline backup' printed."
        ) from None
    return made


def _refuse_damage(made: Backup, found: dict[str, tuple[int, str]], backup: Path) -> None:
    for name in sorted({*made.files, *found}):
        if made.files.get(name) != found.get(name):
            raise OperationError(
                f"{backup} is damaged: {name} does not match its manifest. Use another backup."
            )


def _prove(copy: Books) -> None:
    wrong = [check for check in audit(copy, full=True) if not check.balances]
    remove(copy.layout.audited)
    if wrong:
        first = wrong[0]
        raise OperationError(
            f"the copy does not balance: {first.what}: expected {first.expected}, found "
            f"{first.found}{first.first}. Run 'tapeline audit --full' on the books."
        )
