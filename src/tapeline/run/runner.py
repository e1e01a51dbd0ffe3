"""A running pipeline: intake, ingest and flow together, until told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tapeline.books import Layout
from tapeline.books.fold import write_balances
from tapeline.errors import OperationError, TapelineError
from tapeline.plan import Plan
from tapeline.run.control import paused, refuse_paused
from tapeline.run.flow import Flow, Published
from tapeline.run.ingest import Ingest
from tapeline.run.lock import WriterLock
from tapeline.run.schedule import Ticks
from tapeline.run.session import build_session
from tapeline.run.sinks import Delivering
from tapeline.run.snapshot import answer_all
from tapeline.run.supervisor import Supervisor
from tapeline.run.taking import Taking
from tapeline.run.tape import Tape, TapeBatch
from tapeline.settings import Settings
from tapeline.watch.housekeeping import kept_for, remove_archived, tidy
from tapeline.watch.log import Log
from tapeline.watch.notify import Notifier
from tapeline.watch.status import StatusFile

PAUSE_SECONDS = 0.05
FLOW = "the flow"


def now() -> datetime:
    return datetime.now(UTC)


class Runner:
    """Everything one process holds while it runs a pipeline. Use it as a context manager."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        clock: Callable[[], datetime] = now,
        session: SparkSession | None = None,
    ) -> None:
        self.plan = plan
        self.settings = settings
        self._clock = clock
        self.layout = Layout(settings.home(plan.name))
        self._keep_archive = kept_for(settings.housekeeping.keep_archive)
        self._lock = WriterLock(self.layout.home)
        self._stop = threading.Event()
        self._working = threading.RLock()
        self._given_session = session
        self._failed: TapelineError | None = None
        self._ended: dict[str, StreamingQuery] = {}
        try:
            self._open(session or build_session(settings, plan.name))
        except BaseException:
            self._lock.release()
            raise

    def _open(self, session: SparkSession) -> None:
        self.session = session
        self._lock.enter_jvm(session)
        sources = self.plan.pipeline.sources
        self.tapes = {name: Tape(self.layout, name, self._clock) for name in sources}
        self.flow = Flow(session, self.plan, self.settings, self.tapes, self._clock)
        self.flow.warm()
        self.ingests = {
            name: Ingest(
                session,
                tape,
                self.layout.intake(name) / "accepted",
                self.layout.checkpoint(name),
                self.settings,
                self.flow.room,
            )
            for name, tape in self.tapes.items()
        }
        self.status = StatusFile(self.layout.status, self._clock())
        self._kept_house = self.flow.published_batch
        self._notifier = Notifier(self.settings.notify)
        self.supervisor = Supervisor(
            self.plan.name, self.settings.supervise, self._tell, self._clock
        )
        self.taking = Taking(
            self.plan, self.settings, self.flow, self.supervisor, self.status, self._clock
        )
        self.delivering = Delivering(
            self.plan, self.settings, self.supervisor, lambda: self.flow.published_batch
        )
        self.log = Log(self._log_folder(), self.settings.log, self._clock)
        self.log.say("started", pipeline=self.plan.name, batch=self.flow.published_batch)

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.flow.close()
        self.taking.close()
        self.delivering.close()
        self._notifier.close()
        self.log.say("stopped", batch=self.flow.published_batch)
        self.log.close()
        self._lock.release()
        if self._given_session is None:
            self.session.stop()

    def stop(self) -> None:
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for the end."""
        return self._stop.is_set()

    @property
    def failure(self) -> TapelineError | None:
        """What keeps the flow from advancing."""
        return self._failed or self.supervisor.failure(FLOW)

    @failure.setter
    def failure(self, error: TapelineError | None) -> None:
        self._failed = error

    def run_once(self) -> list[Published]:
        """Take what is there, work it off, and end: for an outside scheduler."""
        refuse_paused(self.layout)
        done: list[Published] = []
        taking = threading.Thread(target=self.taking.take_all, args=(self._stop,), daemon=True)
        taking.start()
        queries: list[StreamingQuery] = []
        try:
            for name, ingest in self.ingests.items():
                queries.append(ingest.start(partial(self.flow.offer, name)))
            while not self._stop.is_set() and (taking.is_alive() or self._on_the_way()):
                answer_all(self.layout, self._still)
                for query in queries:
                    if not query.isActive:
                        raise _end_of(query)
                if not self.flow.waiting:
                    time.sleep(PAUSE_SECONDS)
                done += self._advance()
        finally:
            asked = self._stop.is_set()
            self._stop.set()
            taking.join()
            for query in queries:
                query.stop()
            if not asked:
                self._stop.clear()
            self.taking.settle()
            self._say(running=False)
        try:
            self.delivering.finish(self._stop)
        finally:
            self._say(running=False)
        if self.taking.failure is not None:
            raise self.taking.failure
        return done

    def _on_the_way(self) -> bool:
        """Whether anything accepted has not been published."""
        # In this order: what leaves one place meanwhile is seen in the next.
        return (
            self.taking.ahead()
            or any(t.last_batch > self.flow.position[name] for name, t in self.tapes.items())
            or bool(self.flow.waiting)
        )

    def run(self, every: timedelta | None = None, seconds: float | None = None) -> None:
        """Run until stopped; the flow advances with the tape, or by aligned ticks."""
        intake = threading.Thread(target=self.taking.go_on, args=(self._stop,), daemon=True)
        intake.start()
        self.delivering.start()
        deadline = time.monotonic() + seconds if seconds else None
        ticks = Ticks.starting(every, self._clock()) if every else None
        queries: dict[str, StreamingQuery] = {}
        try:
            if ticks is None:
                # What a killed process was at work on comes first, before Spark starts the queries.
                self._guarded_advance(limit=1)
            for name, ingest in self.ingests.items():
                queries[name] = ingest.start(self._on_tape(name, ticks is None))
            if ticks is None:
                self._guarded_advance()
            while not self._stop.is_set() and (deadline is None or time.monotonic() < deadline):
                self._turn(queries, ticks)
                self._stop.wait(PAUSE_SECONDS)
        finally:
            self._stop.set()
            intake.join()
            # Between batches: stopping a query interrupts the Spark jobs of the one at work.
            with self._working:
                for query in queries.values():
                    query.stop()
            self.delivering.end()
            self.taking.settle()
            self._say(running=False)
        if self.taking.failure is not None:
            raise self.taking.failure

    def _turn(self, queries: dict[str, StreamingQuery], ticks: Ticks | None) -> None:
        for name, query in queries.items():
            if not query.isActive:
                self._restart(name, queries, ticks is None)
            elif (
                self.ingests[name].batches
                > self.settings.housekeeping.roll_checkpoint_every_batches
            ):
                query.processAllAvailable()
                query.stop()
                self.ingests[name].roll()
                queries[name] = self.ingests[name].start(self._on_tape(name, ticks is None))
        if ticks is not None and ticks.due(self._clock()):
            self._guarded_advance()
            ticks.done(self._clock())
            self.status.overruns = ticks.overruns
        elif ticks is None and (self.failure is not None or self.flow.waiting):
            self._try_again()
        answer_all(self.layout, self._still)
        self._say()

    def _try_again(self) -> None:
        """What waits: a failed batch, acts of operators, all that came during a pause."""
        if self._working.acquire(blocking=False):
            try:
                self._guarded_advance()
            finally:
                self._working.release()

    def _restart(self, name: str, queries: dict[str, StreamingQuery], asap: bool) -> None:
        """An ingest that stopped starts again, later and later; at last the run ends."""
        part, query = f"ingest of {name}", queries[name]
        if self._ended.get(name) is not query:  # its end is counted once
            self._ended[name] = query
            error = _end_of(query)
            if self.supervisor.failed(part, error).given_up:
                raise error
        if self.supervisor.may_try(part):
            try:
                queries[name] = self.ingests[name].start(self._on_tape(name, asap))
            except Exception as error:
                if self.supervisor.failed(part, error).given_up:
                    raise

    def _on_tape(self, name: str, asap: bool) -> Callable[[TapeBatch], None]:
        def then(batch: TapeBatch) -> None:
            with self._working:
                self.supervisor.works(f"ingest of {name}")
                self.flow.offer(name, batch)
                self.taking.settle(name)
                if asap and not self._stop.is_set():
                    self._guarded_advance()

        return then

    def _guarded_advance(self, limit: int | None = None) -> None:
        """Advance; a flow that fails is tried again later and never stops ingest."""
        with self._working:
            if self._rests() or not self.supervisor.may_try(FLOW):
                return
            try:
                self._advance(limit)
                self.supervisor.works(FLOW)
            except Exception as error:  # noqa: BLE001 - whatever stops the flow must not stop ingest
                self.supervisor.failed(FLOW, error, self.flow.at_work)
                self._say()

    def _advance(self, limit: int | None = None) -> list[Published]:
        done: list[Published] = []
        while self.flow.waiting and not self._stop.is_set() and len(done) != limit:
            published = self.flow.advance(limit=1)
            if not published:
                break
            done += published
            self._note(published[0])
            if self._rests():
                break
            self._housekeeping()
            self._say()
        return done

    def _note(self, published: Published) -> None:
        self.status.note(published)
        milliseconds = round(published.seconds * 1000)
        self.log.say(
            "published",
            batch=published.batch,
            records=published.records,
            milliseconds=milliseconds,
        )

    def _rests(self) -> bool:
        """Whether somebody has paused the flow; the change is logged once."""
        facts = paused(self.layout)
        if (facts is None) != (self.status.paused is None):
            self.log.say("paused" if facts else "resumed", **(facts or {}))
        self.status.paused = facts
        return facts is not None

    @contextmanager
    def _still(self) -> Iterator[None]:
        """Between two batches, with nothing written meanwhile: intake, tapes and books."""
        with ExitStack() as held:
            held.enter_context(self._working)
            held.enter_context(self.taking.still())
            for tape in self.tapes.values():
                held.enter_context(tape.still())
            yield
            self.log.say("picture", batch=self.flow.published_batch)

    def _tell(self, message: dict[str, Any]) -> None:
        """An incident goes to the log, and to whom it may concern."""
        facts = {k: v for k, v in message.items() if k not in ("event", "at", "pipeline")}
        self.log.say(f"incident_{message['event']}", **facts)
        self._notifier.tell(message)

    def _log_folder(self) -> Path:
        said = self.settings.log.folder
        return self.settings.within(said) if said else self.layout.log

    def _housekeeping(self) -> None:
        """Between batches, in the same process: nothing else writes meanwhile."""
        settings = self.settings.housekeeping
        before, batch = self._kept_house, self.flow.published_batch
        self._kept_house = batch

        def due(every: int) -> bool:
            return batch // every > before // every

        if due(settings.balances_every_batches):
            for summary in self.plan.summaries:
                write_balances(self.layout, summary, batch)
        if due(settings.compact_every_batches):
            for book in (*self.flow.ledger.books.values(), self.flow.ledger.commits.book):
                tidy(book, settings)
            for name, tape in self.tapes.items():
                tape.tidy(settings, flown=not self.flow.waiting)
                archive = self.layout.intake(name) / "archive"
                remove_archived(archive, self._keep_archive, self._clock())

    def _say(self, running: bool = True) -> None:
        self.status.ahead = {name: tape.ahead()[1:] for name, tape in self.tapes.items()}
        self.status.partitions = self.taking.lag(self._clock())
        self.status.sinks = self.delivering.facts()
        self.status.retries = self.supervisor.retries
        self.status.incidents = [one.facts() for one in self.supervisor.incidents.values()]
        if self._notifier.problem:
            self.status.problems["notify"] = self._notifier.problem
        else:
            self.status.problems.pop("notify", None)
        self.status.write(self.flow, self.failure, running, self._clock())


def _end_of(query: StreamingQuery) -> OperationError:
    """Why a query that should run for ever has ended."""
    failure = query.exception()
    text = str(failure).split("JVM stacktrace")[0].strip() if failure else "nobody knows why"
    return OperationError(f"ingest stopped: {text}")
