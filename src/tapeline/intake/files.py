"""Intake: takes whole files out of a drop folder and publishes them as pieces.

Delivers: every line of every file that can be read, exactly once and in order. A file is whole when
its manifest agrees with it, or when nobody writes it any more; it is then renamed into taken/, read
once, published, and archived when its pieces are on the tape. One thread takes; `settle` may be
called from any.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from types import TracebackType

from tapeline.books.pieces import PieceFacts
from tapeline.errors import OperationError, TapelineBug
from tapeline.formats.limits import IntakeLimits, UnreadableFileError
from tapeline.intake.appended import still_begins_with, tail
from tapeline.intake.archive import Archive, DeliveryNote, identity
from tapeline.intake.complete import CompletenessCheck
from tapeline.intake.delivery_reader import DeliveryReader, FileRules, TailStart
from tapeline.intake.drop_folder import DropFolder, shown
from tapeline.intake.packing import Packer
from tapeline.intake.problems import ProblemLog
from tapeline.intake.shelf import Shelf
from tapeline.store.disk import Lease, hold, lease
from tapeline.store.files import make_folder

__all__ = ["FileRules", "Intake", "IntakeLimits"]

# Why a file that is whole stays in the drop folder until the next pass: its kind, and in words.
NOT_TAKEN = {
    errno.ENOENT: ("GONE", "it vanished before it could be taken"),
    errno.EACCES: ("UNREADABLE", "it cannot be taken out of its folder"),
    errno.EPERM: ("UNREADABLE", "it cannot be taken out of its folder"),
    errno.EROFS: ("UNREADABLE", "it cannot be taken out of its folder"),
    errno.EBUSY: ("HELD", "it cannot be taken yet"),
}


@dataclass(frozen=True)
class Published:
    """A taken file whose records are all in pieces: the last of them, and what was read of it."""

    last_piece: int
    bytes: int
    sha256: str | None


class Intake:
    """The intake of one source. Holds a lock on its home until it is closed."""

    def __init__(
        self,
        drop: Path,
        home: Path,
        form: FileRules,
        limits: IntakeLimits,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        _refuse_nesting(drop, home)
        self._home = home
        with self._in_words():
            make_folder(home)
            self._originals = Archive(home, form.keep)
            self._shelf = Shelf(home)
            self._lock = hold(home / ".lock", f"the intake at {home}")
        self._form = form
        self._limits = limits
        self._clock = clock
        self._findings = ProblemLog(home / "findings.jsonl", clock)
        self._drop = DropFolder(drop, self._findings)
        self._wholeness = CompletenessCheck(form, limits, monotonic, clock, self._findings)
        self._packer = Packer(self._shelf, limits, clock, self._publish)
        self._turn = threading.Lock()
        self._sound = False  # what is in memory agrees with what is on disk
        self._recovered = False
        self._through = 0  # pieces up to here are on the tape
        self._delivered = 0  # the last delivery that was published
        self._read = 0  # the last delivery that was read and found good
        self._unread: list[DeliveryNote] = []
        self._published: dict[int, Published] = {}
        self._copied: set[tuple[int, ...]] = set()

    def recover(self, last_piece: int, last_delivery: int) -> None:
        """Finish what a crash interrupted. Call it first, with what is already on the tape."""
        with self._turn, self._in_words():
            self._through = max(self._through, last_piece)
            self._delivered = max(self._delivered, last_delivery)
            self._recovered = True
            self._resume()

    def take(self) -> int:
        """Look at the drop folder once; the number of pieces published."""
        if not self._recovered:
            raise TapelineBug("Intake.take() was called before Intake.recover().")
        with self._turn, self._in_words():
            before = self._shelf.last_piece
            if not self._sound:
                self._resume()
            self._sound = False
            self._read_unread()
            for path in self._drop.page(self._limits.files_per_pass):
                note = self._accept(path)
                if note:
                    self._read_original(note)
            self._packer.flush()
            self._put_away()
            self._sound = True
            return self._shelf.last_piece - before

    def settle(self, through_piece: int) -> None:
        """Pieces up to this one are on the tape: their originals are archived or deleted.

        Never waits: while `take` is at work, that does it before it ends.
        """
        self._through = max(self._through, through_piece)
        if self._turn.acquire(blocking=False):
            try:
                with self._in_words():
                    if self._sound:
                        self._put_away()
            finally:
                self._turn.release()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is taken or put away meanwhile."""
        with self._turn:
            yield

    def waiting(self) -> tuple[int, int]:
        """Files in the drop folder and their bytes; of more than 10,000 files, the first ones."""
        return self._drop.waiting()

    @property
    def rounds(self) -> int:
        """How often the whole drop folder has been looked at."""
        return self._drop.rounds

    def close(self) -> None:
        """Give the lock back."""
        if self._lock >= 0:
            self._drop.close()
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Intake:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        self._note_published(self._shelf.recover(max(self._through, self._shelf.last_piece)))
        notes = self._originals.recover()
        self._unread = [note for note in notes if note.delivery > self._delivered]
        for note in notes:
            known = self._published.get(note.delivery)
            if note.delivery <= self._delivered and (not known or known.bytes != note.size):
                # What is no longer in accepted/ is on the tape.
                last_piece = known.last_piece if known else self._through
                self._published[note.delivery] = Published(last_piece, note.size, None)
        self._published = dict(sorted(self._published.items()))
        self._copied = {note.copied for note in notes if note.copied}
        self._read = self._delivered
        self._read_unread()
        self._packer.flush()
        self._sound = True

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

    def _publish(self) -> None:
        self._originals.sync()
        self._note_published(self._shelf.decide())
        self._shelf.finish()

    def _note_published(self, pieces: Sequence[PieceFacts]) -> None:
        for piece in pieces:
            for part in piece.deliveries:
                self._delivered = max(self._delivered, part.delivery)
                if part.complete:
                    published = Published(piece.piece, part.bytes, part.sha256)
                    self._published[part.delivery] = published

    def _put_away(self) -> None:
        """Archive or delete what is on the tape; what cannot be now, at the next call."""
        items = self._published.items()
        due = list(takewhile(lambda item: item[1].last_piece <= self._through, items))
        for delivery, published in due:
            try:
                done = self._put_one_away(delivery, published)
            except FileNotFoundError:
                self._findings.add("GONE", f"delivery {delivery}", "it was removed from taken/")
                done = True
            except OSError as error:
                self._sound = False
                self._findings.once("ARCHIVE", "archive", f"not possible now: {error}")
                return
            if done:
                self._findings.forget("archive")
                del self._published[delivery]

    def _put_one_away(self, delivery: int, published: Published) -> bool:
        with self._originals.opened(delivery) as handle:
            state = os.fstat(handle)
            if lease(handle) is Lease.REFUSED:
                return False
            if state.st_size != published.bytes:
                if self._wholeness.unchanged(b"\0taken %d" % delivery, state):
                    self._take_tail(handle, delivery, published)
                return False
            self._originals.put_away(delivery)
            return True

    def _take_tail(self, handle: int, delivery: int, published: Published) -> None:
        """Make a delivery of what was appended to a file after it was taken."""
        state, first, start = os.fstat(handle), 0, TailStart()
        size = state.st_size
        if size > published.bytes and still_begins_with(handle, published.bytes, published.sha256):
            first, start = tail(handle, published.bytes, size, self._form, self._limits)
        name = self._originals.note(delivery).name
        detail = f"it had {published.bytes:,} bytes when it was taken and has {size:,} now"
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
        self._published[delivery] = Published(published.last_piece, size, None)


def _refuse_nesting(drop: Path, home: Path) -> None:
    inner, outer = home.resolve(), drop.resolve()
    if inner.is_relative_to(outer) or outer.is_relative_to(inner):
        raise OperationError(
            f"the input folder {drop} and the intake folder {home} are inside each other, so "
            "intake would read its own files. Move one of them."
        )
