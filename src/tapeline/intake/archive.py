"""The files intake has taken: in taken/ while in work, then in archive/ or rejected/.

The number of its delivery is a file's only name here. What its sender called it stands as data in
a note beside it: taken/000000000007 and taken/000000000007.json.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tapeline.books.rejected import DIGITS, beside, numbered
from tapeline.formats.limits import UnreadableFileError
from tapeline.intake.complete import CompleteFile
from tapeline.intake.drop_folder import MANIFEST, NOT_PLAIN, Opened, shown
from tapeline.store.disk import READ_SAFELY, copy_range, move, sweep
from tapeline.store.files import replace_file, sync

UNKNOWN_NAME = "(its name was lost in a power cut)"


@dataclass(frozen=True)
class DeliveryNote:
    """What is known about a taken file: `size` bytes of it count, what follows came later."""

    delivery: int
    name: str
    size: int
    taken_at: str = ""
    manifest: Mapping[str, Any] | None = None
    # of a file that had to be copied: device, inode, size, mtime of the one in the drop folder
    copied: tuple[int, ...] | None = None
    # of a tail: the delivery it grew from, where that ends with it, and what came before it
    tail_of: int | None = None
    tail_end: int = 0
    lines_before: int = 0
    header: bytes | None = None
    modified_ns: int | None = None
    # of a rejected file: its number in rejected/, and why
    rejected_as: int | None = None
    reason: str | None = None


class Archive:
    """The taken files of one source."""

    def __init__(self, home: Path, keep: str) -> None:
        self._taken = home / "taken"
        self._archive = home / "archive"
        self._rejected = home / "rejected"
        self._work = home / "work"
        self._keep = keep
        self._last_rejected: int | None = None
        for folder in (self._taken, self._archive, self._rejected, self._work):
            folder.mkdir(exist_ok=True)

    def recover(self) -> list[DeliveryNote]:
        """The notes of all files in taken/, by delivery, after finishing interrupted moves."""
        for path in self._work.iterdir():
            sweep(path)
        names = {entry.name for entry in os.scandir(self._taken)}
        for name in sorted(names):
            number = name.removesuffix(".json")
            if number != name and number.isdigit() and number not in names:
                self._finish_move(int(number))
        numbers = sorted(int(name) for name in names if name.isdigit())
        notes = {number: self.note(number) for number in numbers}
        for tail in list(notes.values()):
            grown = notes.get(tail.tail_of or 0)
            if grown and grown.size != tail.tail_end:
                # The crash came between taking a tail and noting that it was taken.
                notes[grown.delivery] = replace(grown, size=tail.tail_end)
                self._replace(notes[grown.delivery])
        return list(notes.values())

    def note(self, delivery: int) -> DeliveryNote:
        """The note about a taken file; what the file itself says when the note was lost."""
        path = self._path(delivery)
        try:
            known = json.loads(beside(path).read_bytes())
            known["copied"] = tuple(known["copied"]) if known["copied"] else None
            known["header"] = bytes.fromhex(known["header"]) if known["header"] else None
            return DeliveryNote(**known)
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return DeliveryNote(delivery, UNKNOWN_NAME, os.lstat(path).st_size)

    @contextmanager
    def opened(self, delivery: int) -> Iterator[int]:
        """A handle on a taken file. Raises UnfitError when it is not a plain one."""
        try:
            handle = os.open(self._path(delivery), READ_SAFELY)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise UnreadableFileError(NOT_PLAIN) from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UnreadableFileError(NOT_PLAIN)
            yield handle
        finally:
            os.close(handle)

    def claim(
        self, opened: Opened, whole: CompleteFile, delivery: int, taken_at: str
    ) -> DeliveryNote:
        """Take a file out of the drop folder. Raises OSError when that is not possible."""
        name = shown(opened.path)
        modified = whole.state.st_mtime_ns
        note = DeliveryNote(
            delivery, name, whole.state.st_size, taken_at, whole.manifest, modified_ns=modified
        )
        target = self._path(delivery)
        self._write(note)
        try:
            os.rename(opened.name, target, src_dir_fd=opened.folder)
        except OSError as error:
            if error.errno == errno.EXDEV:
                note = self._claim_copy(opened, whole, note)
            else:
                beside(target).unlink()
                raise
        state = os.lstat(target)
        if note.copied is None and state.st_ino != whole.state.st_ino:
            # Its sender replaced it between judging and renaming: what came counts.
            note = replace(note, size=state.st_size, manifest=None, modified_ns=state.st_mtime_ns)
            self._write(note)
        if whole.manifest is not None:
            with suppress(FileNotFoundError):
                os.unlink(opened.name + MANIFEST, dir_fd=opened.folder)
        return note

    def claim_tail(self, note: DeliveryNote, handle: int, first: int) -> None:
        """Take what was appended to a taken file as a delivery of its own."""
        part = self._work / "tail"
        copy_range(handle, first, note.tail_end, part)
        self._replace(note)
        os.rename(part, self._path(note.delivery))
        self._replace(replace(self.note(note.tail_of or 0), size=note.tail_end))

    def renumber(self, note: DeliveryNote, delivery: int) -> DeliveryNote:
        """Give an unpublished file another number, when one before it left a gap."""
        if note.delivery == delivery:
            return note
        renamed = replace(note, delivery=delivery)
        self._write(renamed)
        os.rename(self._path(note.delivery), self._path(delivery))
        beside(self._path(note.delivery)).unlink(missing_ok=True)
        return renamed

    def reject(self, note: DeliveryNote, reason: str) -> str:
        """Put a file aside that cannot be read. Returns where it is now."""
        if self._last_rejected is None:
            self._last_rejected = _highest(self._rejected)
        self._last_rejected += 1
        rejected = replace(note, rejected_as=self._last_rejected, reason=reason)
        self._replace(rejected)
        target = numbered(self._rejected, self._last_rejected)
        self._move(note.delivery, target)
        return str(target.relative_to(self._rejected.parent))

    def put_away(self, delivery: int) -> None:
        """Archive or delete a file whose records are on the tape."""
        path = self._path(delivery)
        if self._keep == "archive":
            self._move(delivery, numbered(self._archive, delivery))
        else:
            path.unlink(missing_ok=True)
            beside(path).unlink(missing_ok=True)

    def sync(self) -> None:
        """Make sure that a taken file is not back in the drop folder after a power cut."""
        sync(self._taken)

    def _claim_copy(self, opened: Opened, whole: CompleteFile, note: DeliveryNote) -> DeliveryNote:
        state = whole.state
        part, target = self._work / "copy", self._path(note.delivery)
        copy_range(opened.handle, 0, state.st_size, part)
        note = replace(note, copied=identity(state))
        self._replace(note)
        os.rename(part, target)
        sync(self._taken)
        try:
            now = os.stat(opened.name, dir_fd=opened.folder, follow_symlinks=False)
            if identity(now) != identity(state):
                raise OSError(errno.EBUSY, "it changed while it was copied")
            os.unlink(opened.name, dir_fd=opened.folder)
        except OSError:
            target.unlink()
            beside(target).unlink()
            raise
        return note

    def _move(self, delivery: int, target: Path) -> None:
        """Move a file, then its note: a note alone tells `recover` what is left to do."""
        path = self._path(delivery)
        target.parent.mkdir(parents=True, exist_ok=True)
        move(path, target)
        with suppress(FileNotFoundError):
            move(beside(path), beside(target))

    def _finish_move(self, delivery: int) -> None:
        note_path = beside(self._path(delivery))
        try:
            rejected_as = json.loads(note_path.read_bytes())["rejected_as"]
        except (ValueError, KeyError, TypeError):
            rejected_as = None
        folder = self._archive if rejected_as is None else self._rejected
        target = numbered(folder, delivery if rejected_as is None else rejected_as)
        if target.exists() and not beside(target).exists():
            move(note_path, beside(target))
        else:
            note_path.unlink()

    def _write(self, note: DeliveryNote) -> None:
        # Not synced: a power cut may cost a name, never a record, and 100,000 syncs cost minutes.
        beside(self._path(note.delivery)).write_text(_text(note), encoding="utf-8")

    def _replace(self, note: DeliveryNote) -> None:
        path = beside(self._path(note.delivery))
        replace_file(path, _text(note).encode(), work=self._work)

    def _path(self, delivery: int) -> Path:
        return self._taken / f"{delivery:0{DIGITS}d}"


def identity(state: os.stat_result) -> tuple[int, ...]:
    """What tells a file that was copied from one that only has its name."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _text(note: DeliveryNote) -> str:
    return json.dumps(vars(note), default=bytes.hex)


def _highest(folder: Path) -> int:
    """The highest number in a divided folder."""
    for part in sorted(folder.iterdir(), reverse=True):
        numbers = [int(path.name) for path in part.iterdir() if path.name.isdigit()]
        if numbers:
            return max(numbers)
    return 0
