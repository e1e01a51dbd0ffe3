"""Delivering: a thread per sink follows the published batches; the flow never waits for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tapeline.books import Layout
from tapeline.books.status import SinkStatus
from tapeline.declare import Sink
from tapeline.declare.destination import FencedError, SinkContext, SinkPosition
from tapeline.deliver.outbox import Outbox
from tapeline.deliver.position_file import PositionFile
from tapeline.errors import OperationError
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.store.files import read_json
from tapeline.store.recovery import Recovery
from tapeline.supervisor import Supervisor

PAUSE_SECONDS = 0.05
# At the end of a run what is published still leaves, as far as that goes in a few seconds.
LAST_SECONDS = 5.0
# Beyond this a thread that waits for a cluster is left to itself: what it holds is not committed.
JOIN_SECONDS = 30.0


class SinkWorker:
    """One sink: what is published and not sent, in order, a few batches at a time."""

    def __init__(self, sink: Sink, outbox: Outbox, pipeline: str, settings: Settings) -> None:
        self.sink = sink
        self._outbox = outbox
        self._destination = sink.destination()
        self._layout = Layout(settings.home(pipeline))
        noted = PositionFile(self._layout.sink(sink.name))
        self._context = SinkContext(pipeline, sink.name, settings, noted, self._refuse_other_books)
        self._settings = settings.sinks
        self.reached: int | None = None  # as far as it is known
        self._recovery = Recovery(self._open)
        self.messages = 0
        self.problem: str | None = None

    def advance(self, published: int) -> bool:
        """Send something of what waits; False when nothing does. After an error it opens again."""
        with self._recovery.step():
            assert self.reached is not None
            waits = self.reached < published
            if waits:
                limit = self._settings.rows_per_delivery
                place, outgoing = self._outbox.after(self.reached, published, limit)
                if outgoing:
                    self._destination.send(outgoing)
                    self.messages += sum(len(one.rows) for one in outgoing)
                self.reached = place.batch
        return waits

    def _open(self) -> None:
        """At the start and after an error: the destination says how far it is."""
        self._destination.close()
        self._destination.open(self._context)
        self.reached = self._begin(self._destination.position())

    def close(self) -> None:
        self._destination.close()

    def status(self, published: int) -> SinkStatus:
        """What `status` says of it."""
        reached = self.reached
        return SinkStatus(
            to=self._destination.goes_to,
            delivered_batch=reached,
            lag_batches=None if reached is None else max(0, published - reached),
            messages=self.messages,
            problem=self.problem,
        )

    def _begin(self, place: SinkPosition) -> int:
        """Where these books go on: at the place, or where a restored copy parted from it."""
        self._refuse_other_books(place)
        return place.batch if self._is_ours(place) else self._restored_at()

    def _refuse_other_books(self, place: SinkPosition) -> None:
        if self._settings.on_other_books == "stop" and not self._is_ours(place):
            raise OperationError(
                f"OTHER_BOOKS: sink {self.sink.name} was delivered up to batch {place.batch} from "
                "other books, or from these before they were restored. Give the sink another name "
                "to send everything, or set sinks.on_other_books = 'go_on' to send what came after "
                f"batch {self._restored_at()}, some of it again."
            )

    def _is_ours(self, place: SinkPosition) -> bool:
        return not place.batch or self._outbox.hash_of(place.batch) == place.hash

    def _restored_at(self) -> int:
        try:
            return int(read_json(self._layout.restored)["batch"])
        except FileNotFoundError:
            return 0


class SinkWorkers:
    """All sinks of a running pipeline."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        supervisor: Supervisor,
        published: Callable[[], int],
    ) -> None:
        self._supervisor = supervisor
        self._published = published
        self._threads: list[threading.Thread] = []
        self._end = threading.Event()
        layout = Layout(settings.home(plan.name))
        self.deliverers = [
            SinkWorker(sink, Outbox(plan, layout, sink), plan.name, settings)
            for sink in plan.pipeline.sinks.values()
        ]

    def start(self) -> None:
        self._end.clear()
        self._threads = [
            threading.Thread(
                target=self._go_on, args=(one,), name=f"sink {one.sink.name}", daemon=True
            )
            for one in self.deliverers
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let what is published leave where nothing stands in the way, then end the threads."""
        deadline = time.monotonic() + LAST_SECONDS
        while self._busy() and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
        self._end.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _busy(self) -> bool:
        """Whether a sink that works has something to send."""
        published = self._published()
        return any(
            one.problem is None and (one.reached is None or one.reached < published)
            for one in self.deliverers
        )

    def finish(self, stop: threading.Event) -> None:
        """Send all there is, once; what stands in the way of a sink is raised after the others."""
        failures = []
        for one in self.deliverers:
            try:
                while not stop.is_set() and one.advance(self._published()):
                    pass
                one.problem = None
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                one.problem = str(error)
                failures.append(error if isinstance(error, OperationError) else OperationError(
                    f"sink {one.sink.name} failed: {type(error).__name__}: {error}"))  # fmt: skip
        if failures:
            raise failures[0]

    def close(self) -> None:
        for one in self.deliverers:
            one.close()

    def status(self) -> dict[str, SinkStatus]:
        """What `status` says of every sink."""
        published = self._published()
        return {one.sink.name: one.status(published) for one in self.deliverers}

    def _go_on(self, one: SinkWorker) -> None:
        part = f"sink {one.sink.name}"
        while not self._end.is_set():
            if not self._supervisor.may_try(part):
                self._end.wait(PAUSE_SECONDS)
                continue
            try:
                busy = one.advance(self._published())
                one.problem = None
                self._supervisor.works(part)
            except FencedError as error:
                # To start again would fence the other process in turn.
                one.problem = str(error)
                self._supervisor.failed(part, error, forever=True)
                return
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                failed = self._supervisor.failed(part, error, forever=True)
                one.problem = str(failed.error)
                continue
            if not busy:
                self._end.wait(PAUSE_SECONDS)
