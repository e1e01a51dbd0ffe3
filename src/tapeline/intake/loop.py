"""The intakes of a running pipeline. They wait while the flow lags too far."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial

from tapeline.books.status_file import PartitionLag, StatusFile
from tapeline.books.tape_batches import TapeBatch
from tapeline.errors import OperationError, RefusedError, TapelineError, in_words
from tapeline.flow.flow import Flow
from tapeline.intake.opening import Opening
from tapeline.intake.source_intake import SourceIntake
from tapeline.settings import Settings
from tapeline.supervisor import Supervisor

PAUSE_SECONDS = 0.05
# How long `--once` waits for transactions that were open when it looked.
HELD_SECONDS = 10.0


class IntakeLoop:
    """Runs all intakes on one thread. What came on a tape waits here until the flow's thread
    asks for it."""

    def __init__(
        self,
        opening: Opening,
        settings: Settings,
        flow: Flow,
        supervisor: Supervisor,
        status: StatusFile,
    ) -> None:
        self._settings = settings
        self._flow = flow
        self._supervisor = supervisor
        self._status = status
        self.failure: BaseException | None = None
        self.flow_works = False  # set by whoever runs the flow, while it advances
        self.arrived = threading.Event()  # something came on a tape, or the loop has ended
        self._new: deque[tuple[str, TapeBatch]] = deque()
        self._arrived: dict[str, datetime | None] = {
            name: tape.last_at for name, tape in flow.tapes.items()
        }
        for name, tape in flow.tapes.items():
            tape.on_append = partial(self._on_append, name)
        self._intakes: dict[str, SourceIntake] = {
            name: opening.open(name) for name in flow.plan.pipeline.sources
        }
        self.hand_over()

    def close(self) -> None:
        for intake in self._intakes.values():
            intake.close()

    def _on_append(self, name: str, batch: TapeBatch) -> None:
        self._arrived[name] = batch.at
        self._new.append((name, batch))
        self.arrived.set()

    def hand_over(self) -> None:
        """Offer to the flow what came on the tapes. Call it on the thread that runs the flow."""
        self.arrived.clear()
        while self._new:
            self._flow.offer(*self._new[0])
            self._new.popleft()  # only now: what is here or with the flow is never out of sight

    @property
    def has_new(self) -> bool:
        """Whether anything that came on a tape has not been offered to the flow."""
        return bool(self._new)

    @property
    def rounds(self) -> int:
        """How often all sources were looked at as a whole."""
        return min((intake.rounds for intake in self._intakes.values()), default=0)

    @property
    def waiting(self) -> int:
        """Files and messages that can be seen and are not on a tape."""
        return sum(intake.waiting()[0] for intake in self._intakes.values())

    def arrivals(self) -> dict[str, datetime | None]:
        """When something last came on each tape, of sources that were looked at in this run."""
        looked = [name for name, intake in self._intakes.items() if intake.rounds]
        return {name: self._arrived[name] for name in looked}

    def go_on(self, stop: threading.Event) -> None:
        """Run until stopped. A failed intake is retried; a refused login ends the run."""
        self.failure = None
        pause = self._settings.intake.poll_milliseconds / 1000
        try:
            while not stop.is_set():
                if not sum(self._guarded_take(name) for name in self._intakes):
                    stop.wait(pause)
        except BaseException as error:  # noqa: BLE001 - the run must not go on without its intakes
            self.failure = _in_words(error)
            stop.set()
        finally:
            self.arrived.set()

    def _guarded_take(self, name: str) -> int:
        part = f"intake of {name}"
        if not self._supervisor.may_try(part):
            return 0
        intake = self._intakes[name]
        try:
            taken = self._take(name)
            dropped = intake.dropped
            if dropped is not None:
                self._status.dropped[name] = dropped
        except Exception as error:
            self._status.problems[name] = f"intake: {in_words(error)}"
            # The other side and the disk may come back at any time. Other errors will not mend.
            known = isinstance(error, OSError | OperationError)
            incident = self._supervisor.failed(part, error, forever=known)
            if isinstance(error, RefusedError) and not intake.has_read:
                raise
            if incident.given_up:
                raise incident.error from error
            return 0
        self._status.problems.pop(name, None)
        self._supervisor.works(part)
        return taken

    def _take(self, name: str) -> int:
        """Pieces that came on the tape; none while the flow is at work on enough of them."""
        if self._waits(name):
            return 0
        intake = self._intakes[name]
        taken = intake.take()
        if intake.query is not None:
            self._status.queries[name] = intake.query
        return taken

    def _waits(self, name: str) -> bool:
        """Whether the source waits for the flow, so that its files can share a piece.

        A flow that is paused, failing or waiting for its tick does not hold up its sources.
        """
        new = sum(len(batch.pieces) for source, batch in list(self._new) if source == name)
        ahead = new + self._flow.backlog.pieces(name)
        return self.flow_works and ahead >= self._settings.intake.pieces_ahead

    def take_all(self, stop: threading.Event) -> None:
        """Take everything there is, once. An error is kept as `failure`."""
        self.failure = None
        for intake in self._intakes.values():
            intake.to_the_end = True
        try:
            self._take_all(stop)
        except BaseException as error:  # noqa: BLE001 - a thread must not end without a word
            self.failure = _in_words(error)
        finally:
            self.arrived.set()

    def _take_all(self, stop: threading.Event) -> None:
        """Take every file that is whole; one that still changes gets its time to settle.

        What a cluster has, and says so, gets the time that it has for any answer.
        """
        patience = 2 * self._settings.intake.settle_seconds
        patience = max(patience, *(one.answer_seconds for one in self._intakes.values()))
        deadline, looked = time.monotonic() + patience, 0
        held_until = time.monotonic() + HELD_SECONDS
        self._held_back()  # what is there is what a look says that comes after this
        while not stop.is_set():
            taken = sum(self._take(name) for name in self._intakes)
            if taken or any(map(self._waits, self._intakes)):
                deadline, looked = time.monotonic() + patience, 0
                held_until = time.monotonic() + HELD_SECONDS
                if not taken:
                    stop.wait(PAUSE_SECONDS)
            elif not self.waiting:
                if time.monotonic() > held_until or not self._held_back():
                    return
                stop.wait(PAUSE_SECONDS)
            elif time.monotonic() > deadline:
                # Every file gets one more look: with many of them a round takes its time.
                looked = looked or self.rounds + 2
                if self.rounds >= looked:
                    return
            else:
                stop.wait(PAUSE_SECONDS)

    def _held_back(self) -> bool:
        """Whether an open transaction hides messages."""
        held = [one.look_again() for one in self._intakes.values()]
        return any(held)

    def lag(self, now: datetime) -> Mapping[str, Mapping[str, PartitionLag]]:
        """The lag of the books, by source and partition."""
        found = {
            name: intake.partitions(self._flow.backlog.booked(name), now)
            for name, intake in self._intakes.items()
        }
        return {name: partitions for name, partitions in found.items() if partitions}

    def settle(self) -> None:
        """Put away what is on the tapes, before a run ends; what fails is left for the next."""
        for intake in self._intakes.values():
            with suppress(OperationError):
                intake.settle()

    @contextmanager
    def still(self) -> Iterator[None]:
        """No writes while this context is open."""
        with ExitStack() as held:
            for intake in self._intakes.values():
                held.enter_context(intake.still())
            yield


def _in_words(error: BaseException) -> BaseException:
    if isinstance(error, TapelineError) or not isinstance(error, Exception):
        return error
    return OperationError(f"intake failed: {in_words(error)}")
