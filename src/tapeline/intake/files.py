"""Intake: takes complete files out of a drop folder and puts their records on the tape.

Delivers: every line of every file that can be read, exactly once and in order. A file is complete
when its manifest agrees with it, or when nobody writes it any more. It is then renamed into taken/,
read once into pieces, and archived when a row of the tape has decided about all of them. The number
of its delivery is the position: what the tape lists is never read again.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tapeline.books.tape import Tape
from tapeline.books.tape_batches import TapeBatch
from tapeline.errors import OperationError
from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.intake.appended import still_begins_with, tail
from tapeline.intake.archive import Archive, DeliveryNote, identity
from tapeline.intake.complete import CompletenessCheck
from tapeline.intake.delivery_reader import DeliveryReader, FileRules, TailStart
from tapeline.intake.drop_folder import DropFolder, shown
from tapeline.intake.packing import Packer
from tapeline.intake.problems import ProblemLog
from tapeline.intake.source_intake import SourceIntake
from tapeline.store.disk import Lease, hold, lease
from tapeline.store.files import make_folder
from tapeline.store.recovery import Recovery

__all__ = ["FileIntake", "FileRules", "IntakeLimits"]

# Why a file that is whole stays in the drop folder until the next pass: its kind, and in words.
NOT_TAKEN = {
    errno.ENOENT: ("GONE", "it vanished before it could be taken"),
    errno.EACCES: ("UNREADABLE", "it cannot be taken out of its folder"),
    errno.EPERM: ("UNREADABLE", "it cannot be taken out of its folder"),
    errno.EROFS: ("UNREADABLE", "it cannot be taken out of its folder"),
    errno.EBUSY: ("HELD", "it cannot be taken yet"),
}


@dataclass(frozen=True)
class Booked:
    """A taken file whose records are all on the tape: what was read of it."""

    bytes: int
    sha256: str | None


class FileIntake(SourceIntake):
    """The intake of one drop folder. Holds a lock on its home until it is closed."""

    def __init__(
        self,
        drop: Path,
        tape: Tape,
        form: FileRules,
        limits: IntakeLimits,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home = tape.home
        _refuse_nesting(drop, home)
        with self._in_words():
            make_folder(home)
            self._originals = Archive(home, form.keep)
            self._lock = hold(home / ".lock", f"the intake at {home}")
        self._tape = tape
        self._form = form
        self._limits = limits
        self._clock = clock
        self._findings = ProblemLog(home / "findings.jsonl", clock)
        self._drop = DropFolder(drop, self._findings)
        self._wholeness = CompletenessCheck(form, limits, monotonic, clock, self._findings)
        self._packer = Packer(tape, limits, clock, self._append)
        self._turn = threading.Lock()
        self._recovery = Recovery(self._resume)
        self._read = 0  # the last delivery that was read and found good
        self._unread: list[DeliveryNote] = []
        self._on_tape: dict[int, Booked] = {}  # deliveries whose originals are in taken/
        self._copied: set[tuple[int, ...]] = set()

    def recover(self) -> None:
        """Finish what a crash interrupted."""
        with self._turn, self._in_words():
            self._recovery.again()

    def take(self) -> int:
        """Look at the drop folder once; the number of pieces that came on the tape."""
        with self._turn, self._in_words():
            before = self._tape.last_piece
            with self._recovery.step():
                # Not sooner: for one pass it is seen if a sender still appends to a file.
                all_away = self._put_away()
                self._read_unread()
                for path in self._drop.page(self._limits.files_per_pass):
                    note = self._accept(path)
                    if note:
                        self._read_original(note)
                self._packer.flush()
            self._recovery.sound = all_away
            return self._tape.last_piece - before

    def settle(self) -> None:
        """Archive the originals whose records are on the tape."""
        with self._turn, self._in_words():
            self._recovery.sound = self._put_away() and self._recovery.sound

    @contextmanager
    def still(self) -> Iterator[None]:
        """No writes while this context is open."""
        with self._turn:
            yield

    def waiting(self) -> tuple[int, int]:
        """Files in the drop folder and their bytes; of more than 10,000 files, the first ones."""
        return self._drop.waiting()

    @property
    def dropped(self) -> tuple[int, int]:
        return self.waiting()

    @property
    def rounds(self) -> int:  # type: ignore[override]
        """How often the whole drop folder has been looked at."""
        return self._drop.rounds

    def close(self) -> None:
        """Give the lock back."""
        if self._lock >= 0:
            self._drop.close()
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> FileIntake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OperationError(
                f"the intake at {self._home} cannot continue: {error}. Nothing is lost: free some "
                "space or give this user write access, and it continues."
            ) from error

    def _resume(self) -> None:
        """Make memory agree with the disk, after a start or an error."""
        self._packer.forget()
        self._tape.discard()
        self._note_all(self._tape.recover())
        delivered = self._tape.last_delivery
        notes = self._originals.recover()
        self._unread = [note for note in notes if note.delivery > delivered]
        for note in notes:
            known = self._on_tape.get(note.delivery)
            if note.delivery <= delivered and (not known or known.bytes != note.size):
                self._on_tape[note.delivery] = Booked(note.size, None)
        self._on_tape = dict(sorted(self._on_tape.items()))
        self._copied = {note.copied for note in notes if note.copied}
        self._read = delivered
        self._read_unread()
        self._packer.flush()

    def _accept(self, path: bytes) -> DeliveryNote | None:
        """Take one file out of the drop folder, if it is whole."""
        with self._drop.opened(path) as opened:
            whole = self._wholeness.judge(opened) if opened else None
            if not opened or not whole:
                return None
            if identity(whole.state) in self._copied:
                # It was taken by way of a copy, and a crash came before it could be removed.
                os.unlink(opened.name, dir_fd=opened.folder)
                return None
            try:
                taken_at = self._clock().isoformat()
                note = self._originals.claim(opened, whole, self._read + 1, taken_at)
            except OSError as error:
                if error.errno not in NOT_TAKEN:
                    raise
                kind, detail = NOT_TAKEN[error.errno]
                self._findings.once(kind, shown(path), f"{detail}: {error.strerror}")
                return None
        self._drop.forget(path)
        return note

    def _read_unread(self) -> None:
        while self._unread:
            self._read_original(self._originals.renumber(self._unread[0], self._read + 1))
            self._unread.pop(0)

    def _read_original(self, note: DeliveryNote) -> None:
        """Read a taken file into pieces, or reject it; its number is then free again."""
        try:
            with self._originals.opened(note.delivery) as handle:
                start = TailStart(note.lines_before, note.header)
                reading = DeliveryReader(handle, note.size, self._form, self._limits, start)
                self._packer.add(note, reading)
                self._read = note.delivery
        except UnreadableFileError as error:
            where = self._originals.reject(note, str(error))
            self._findings.add("REJECTED", note.name, f"{error}; it is kept as {where}")

    def _append(self) -> None:
        self._originals.sync()
        self._note_all(self._tape.append(self._limits.tape_batch))

    def _note_all(self, batches: list[TapeBatch]) -> None:
        for part in (part for batch in batches for part in batch.deliveries):
            if part.complete:
                self._on_tape[part.delivery] = Booked(part.bytes, part.sha256)

    def _put_away(self) -> bool:
        """Archive or delete originals whose records are on the tape; False if a move failed."""
        for delivery, booked in list(self._on_tape.items()):
            try:
                done = self._put_one_away(delivery, booked)
            except FileNotFoundError:
                self._findings.add("GONE", f"delivery {delivery}", "it was removed from taken/")
                done = True
            except OSError as error:
                self._findings.once("ARCHIVE", "archive", f"not possible now: {error}")
                return False
            if done:
                self._findings.forget("archive")
                del self._on_tape[delivery]
        return True

    def _put_one_away(self, delivery: int, booked: Booked) -> bool:
        with self._originals.opened(delivery) as handle:
            state = os.fstat(handle)
            if lease(handle) is Lease.REFUSED:
                return False
            if state.st_size != booked.bytes:
                if self._wholeness.unchanged(b"\0taken %d" % delivery, state):
                    self._take_tail(handle, delivery, booked)
                return False
            self._originals.put_away(delivery)
            return True

    def _take_tail(self, handle: int, delivery: int, booked: Booked) -> None:
        """Make a delivery of what was appended to a file after it was taken."""
        state, first, start = os.fstat(handle), 0, TailStart()
        size = state.st_size
        if size > booked.bytes and still_begins_with(handle, booked.bytes, booked.sha256):
            first, start = tail(handle, booked.bytes, size, self._form, self._limits)
        name = self._originals.note(delivery).name
        detail = f"it had {booked.bytes:,} bytes when it was taken and has {size:,} now"
        if first < size:
            number = self._read + len(self._unread) + 1
            note = DeliveryNote(
                number,
                name,
                size - first,
                self._clock().isoformat(),
                tail_of=delivery,
                tail_end=size,
                lines_before=start.lines_before,
                header=start.header,
                modified_ns=state.st_mtime_ns,
            )
            self._originals.claim_tail(note, handle, first)
            self._unread.append(note)
            detail = f"{detail}; delivery {number} has the rest"
        self._findings.add("GREW", name, detail)
        self._on_tape[delivery] = Booked(size, None)


def _refuse_nesting(drop: Path, home: Path) -> None:
    inner, outer = home.resolve(), drop.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise OperationError(
            f"the input folder {drop} and the intake folder {home} are inside each other, so "
            "intake would read its own files. Move one of them."
        )
