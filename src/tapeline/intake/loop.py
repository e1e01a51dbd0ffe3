"""The intakes of a running pipeline: files out of the drop folders, as fast as the tape goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime

from tapeline.books import Layout
from tapeline.books.quarantine import user
from tapeline.books.status_file import StatusFile
from tapeline.connect import Kafka
from tapeline.errors import OperationError
from tapeline.flow.flow import Flow
from tapeline.intake.files import FileRules, Intake, IntakeLimits
from tapeline.intake.kafka import TopicIntake, TopicOwner
from tapeline.intake.kafka.client_errors import RefusedError
from tapeline.intake.kafka.cluster import ASK_SECONDS
from tapeline.intake.kafka.lag import PartitionLag
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.store.files import make_shared_folder
from tapeline.supervisor import Supervisor

PAUSE_SECONDS = 0.05
# How long `--once` waits for transactions that were open when it looked.
HELD_SECONDS = 10.0


class IntakeLoop:
    """Back pressure: while the tape is behind, files wait in the drop folder, where they can share
    a piece."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        flow: Flow,
        supervisor: Supervisor,
        status: StatusFile,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._flow = flow
        self._tapes = flow.tapes
        self._supervisor = supervisor
        self._status = status
        self._clock = clock
        self.failure: OperationError | None = None
        layout = Layout(settings.home(plan.name))
        self._intakes = {name: self._open(plan, layout, name) for name in plan.pipeline.sources}

    def _open(self, plan: Plan, layout: Layout, name: str) -> Intake | TopicIntake:
        connector = plan.pipeline.sources[name].connector
        said = self._settings.intake
        limits = IntakeLimits(
            files_per_pass=said.files_per_pass,
            records_per_piece=said.records_per_piece,
            bytes_per_piece=said.bytes_per_piece,
            record_bytes=said.record_bytes,
            file_bytes=said.file_bytes,
            file_rows=said.file_rows,
            expansion_ratio=said.expansion_ratio,
            decoded_bytes=said.decoded_bytes,
            settle_seconds=said.settle_seconds,
            room=self._flow.room if self._flow.room.follows else None,
        )
        tape, home = self._tapes[name], layout.intake(name)
        intake: Intake | TopicIntake
        if isinstance(connector, Kafka):
            owner = TopicOwner(plan.name, name, self._flow.operator, user())
            intake = TopicIntake(connector, home, self._settings.kafka, limits, self._clock, owner)
            booked = self._flow.backlog.booked(name)
            for part in tape.deliveries():
                intake.note(part, booked)
        else:
            drop = self._settings.within(connector.path)
            make_shared_folder(drop)
            form = FileRules(connector.format, said.keep, layout.schemas, connector.meta)
            intake = Intake(drop, home, form, limits, self._clock)
        intake.recover(tape.last_piece, tape.last_delivery)
        return intake

    def close(self) -> None:
        for intake in self._intakes.values():
            intake.close()

    def go_on(self, stop: threading.Event) -> None:
        """Take what comes until told to stop; an intake that fails is tried again later.

        But who is refused from the start has made a mistake: that ends the run, as `failure`.
        """
        self.failure = None
        pause = self._settings.intake.poll_milliseconds / 1000
        try:
            while not stop.is_set():
                if not sum(self._guarded_take(name) for name in self._intakes):
                    stop.wait(pause)
        except RefusedError as error:
            self.failure = error
            stop.set()

    def _guarded_take(self, name: str) -> int:
        part = f"intake of {name}"
        if not self._supervisor.may_try(part):
            return 0
        try:
            taken = self._take(name)
            waiting = self._intakes[name].waiting()
            if not isinstance(self._intakes[name], TopicIntake):
                self._status.dropped[name] = waiting
        except (OSError, OperationError) as error:
            self._status.problems[name] = f"intake: {error}"
            self._supervisor.failed(part, error, forever=True)
            if isinstance(error, RefusedError) and self._never_read(name):
                raise
            return 0
        self._status.problems.pop(name, None)
        self._supervisor.works(part)
        return taken

    def _never_read(self, name: str) -> bool:
        intake = self._intakes[name]
        return isinstance(intake, TopicIntake) and not intake.has_read

    def _take(self, name: str) -> int:
        """Pieces that were published; none while enough of them wait for the tape."""
        if self._tapes[name].ahead()[0] >= self._settings.intake.pieces_ahead:
            return 0
        return self._intakes[name].take()

    def take_all(self, stop: threading.Event) -> None:
        """Take all there is, once; what stands in the way is kept as `failure`."""
        self.failure = None
        try:
            self._take_all(stop)
        except (OSError, OperationError) as error:
            said = error if isinstance(error, OperationError) else OperationError(str(error))
            self.failure = said

    def _take_all(self, stop: threading.Event) -> None:
        """Take every file that is whole; one that still changes gets its time to settle.

        What a cluster has, and says so, gets the time that it has for any answer.
        """
        patience = 2 * self._settings.intake.settle_seconds
        if any(isinstance(intake, TopicIntake) for intake in self._intakes.values()):
            patience = max(patience, ASK_SECONDS)
        deadline, looked = time.monotonic() + patience, 0
        held_until = time.monotonic() + HELD_SECONDS
        self._held_back()  # what is there is what a look says that comes after this
        while not stop.is_set():
            taken = sum(self._take(name) for name in self._intakes)
            rounds = min((intake.rounds for intake in self._intakes.values()), default=0)
            if taken:
                deadline, looked = time.monotonic() + patience, 0
                held_until = time.monotonic() + HELD_SECONDS
            elif not sum(intake.waiting()[0] for intake in self._intakes.values()):
                if time.monotonic() > held_until or not self._held_back():
                    return
                stop.wait(PAUSE_SECONDS)
            elif time.monotonic() > deadline and not self.ahead():
                # Every file gets one more look: with many of them a round takes its time.
                looked = looked or rounds + 2
                if rounds >= looked:
                    return
            else:
                stop.wait(PAUSE_SECONDS)

    def _held_back(self) -> bool:
        """Whether an open transaction holds messages back, of which it may be the end."""
        topics = [one for one in self._intakes.values() if isinstance(one, TopicIntake)]
        held = [one.look_again() for one in topics]
        return any(held)

    def lag(self, now: datetime) -> dict[str, dict[str, PartitionLag]]:
        """How far the books are behind the topics, by source and partition."""
        return {
            name: intake.lag.partitions(self._flow.backlog.booked(name), now)
            for name, intake in self._intakes.items()
            if isinstance(intake, TopicIntake)
        }

    def ahead(self) -> bool:
        """Whether anything is accepted that is not on the tape yet."""
        return any(tape.ahead()[0] for tape in self._tapes.values())

    def settle(self, name: str | None = None) -> None:
        """What is on the tape need not be kept in its original; of one source, or of all."""
        for source in [name] if name else self._intakes:
            self._intakes[source].settle(self._tapes[source].last_piece)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing is taken or put away meanwhile."""
        with ExitStack() as held:
            for intake in self._intakes.values():
                held.enter_context(intake.still())
            yield
