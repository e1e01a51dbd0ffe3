"""A running pipeline: intake on one thread, the flow on another, until told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tapeline.books import Books, Layout
from tapeline.books.alerts import EngineAlert
from tapeline.books.status import IncidentStatus, Tick
from tapeline.books.tape import Tape
from tapeline.deliver import SinkWorkers
from tapeline.errors import TapelineError
from tapeline.flow.flow import Flow
from tapeline.flow.progress import Published, RunListener
from tapeline.intake.loop import IntakeLoop
from tapeline.intake.opening import Opening
from tapeline.operate.alert_watch import AlertWatch
from tapeline.operate.control import paused, refuse_paused
from tapeline.operate.maintenance import Maintenance
from tapeline.operate.run_log import RunLog
from tapeline.operate.schedule import Ticks
from tapeline.operate.snapshot import answer_all
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.spark.compile import compiler
from tapeline.spark.queries import SparkQueries, needs_of
from tapeline.spark.reporting import QueryReport
from tapeline.spark.session import build_session, tuned
from tapeline.store.housekeeping import kept_for
from tapeline.store.lock import WriterLock
from tapeline.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        once: bool = False,
    ) -> None:
        """With `once` nothing is warmed: a few records run sooner than what would warm them."""
        self.plan = plan
        self._once = once
        self.settings = settings
        self._clock = clock
        self.layout = Layout(settings.home(plan.name))
        self._keep_archive = kept_for(settings.housekeeping.keep_archive)
        self._lock = WriterLock(self.layout.home)
        self._stop = threading.Event()
        self._given_session = session
        self._failed: TapelineError | None = None
        try:
            given = tuned(session) if session else None
            self._open(given or build_session(settings, plan.name, needs_of(plan)))
        except BaseException:
            self._lock.release()
            raise

    def _open(self, session: SparkSession) -> None:
        self.session = session
        self._lock.enter_jvm(session)
        sources = self.plan.pipeline.sources
        self.tapes = {name: Tape(self.layout, name, self._clock) for name in sources}
        steps = compiler(session, self.plan, self.settings)
        self.flow = Flow(steps, self.plan, self.settings, self.tapes, self._clock)
        if not self._once:
            self.flow.warm()
        self._upkeep = Maintenance(self.flow, self._keep_archive, self._clock)
        self._reports = RunLog(self.layout, self.settings, self._clock)
        self.supervisor = Supervisor(
            self.plan.name, self.settings.supervise, self._reports.tell, self._clock
        )
        opening = Opening(self.plan, self.settings, self.flow, self._clock, SparkQueries(session))
        self.taking = IntakeLoop(
            opening, self.settings, self.flow, self.supervisor, self._reports.status
        )
        self.delivering = SinkWorkers(
            self.plan, self.settings, self.supervisor, lambda: self.flow.published_batch
        )
        self.on_alert: Callable[[str, EngineAlert], None] = lambda *_: None
        self.watch = AlertWatch(
            Books(self.plan, self.layout.home), self.settings, self._reports.status,
            self.taking.arrivals, self._alert, self._clock,
        )  # fmt: skip
        self._reports.started(self.plan.name, self.flow.published_batch)
        # Listeners are those of the session that was given. To tell them takes private classes.
        told = (self._given_session or session) if self.settings.flow.prepared else None
        self.query = QueryReport(told, self.plan.name, self.layout.home, self._not_told)
        self._listeners: list[RunListener] = [self.query]
        for one in self._listeners:
            one.started()
        for words in self.flow.steps.cuts:  # of books older than this check; new ones are refused
            self._reports.log.say("digits_cut", words=words)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stop()
        for one in self._listeners:
            one.ended(error or self.failure)
        self.flow.close()
        self.taking.close()
        self.delivering.close()
        self._reports.close(self.flow.published_batch)
        self._lock.release()
        if self._given_session is None:
            self.session.stop()

    def stop(self) -> None:
        self._stop.set()

    def _alert(self, event: str, alert: EngineAlert) -> None:
        self._reports.tell_alert(self.plan.name, event, alert)
        self.on_alert(event, alert)

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for the end."""
        return self._stop.is_set()

    def _not_told(self, words: str) -> None:
        self._reports.log.say("spark_not_told", words=words)

    @property
    def spark_ui(self) -> str | None:
        """The address of Spark's UI, if it is on."""
        return self.session.sparkContext.uiWebUrl

    @property
    def failure(self) -> TapelineError | None:
        """What keeps the flow from advancing."""
        return self._failed or self.supervisor.failure(FLOW)

    @failure.setter
    def failure(self, error: TapelineError | None) -> None:
        self._failed = error

    def run_once(self) -> list[Published]:
        """Process everything waiting, then return. For external schedulers."""
        refuse_paused(self.layout)
        done: list[Published] = []
        taking = threading.Thread(target=self.taking.take_all, args=(self._stop,), daemon=True)
        taking.start()
        try:
            while not self._stop.is_set() and (taking.is_alive() or self.on_the_way):
                answer_all(self.layout, self._still)
                self.taking.hand_over()
                if not self.flow.waiting:
                    self.taking.arrived.wait(PAUSE_SECONDS)
                with self._reports.noting_failure(self.flow):
                    done += self._advance()
        finally:
            asked = self._stop.is_set()
            self._stop.set()
            taking.join()
            if not asked:
                self._stop.clear()
            self.taking.settle()
            self._say(running=False)
        try:
            self.delivering.finish(self._stop)
        finally:
            self._say(running=False)
            self.watch.look()
        if self.taking.failure is not None:
            raise self.taking.failure
        return done

    @property
    def on_the_way(self) -> bool:
        """Whether anything on a tape has not been published."""
        return self.taking.has_new or bool(self.flow.waiting)

    def run(self, every: timedelta | None = None, seconds: float | None = None) -> None:
        """Run until stopped; the flow advances with the tape, or by aligned ticks."""
        intake = threading.Thread(target=self.taking.go_on, args=(self._stop,), daemon=True)
        watch = threading.Thread(target=self.watch.run, args=(self._stop,), daemon=True)
        intake.start()
        watch.start()
        self.delivering.start()
        deadline = time.monotonic() + seconds if seconds else None
        ticks = Ticks.starting(every, self._clock()) if every else None
        try:
            while not self._stop.is_set() and (deadline is None or time.monotonic() < deadline):
                self._turn(ticks)
                self.taking.arrived.wait(PAUSE_SECONDS)
        finally:
            self._stop.set()
            intake.join()
            watch.join()
            self.delivering.end()
            self.taking.settle()
            self._say(running=False)
            self.watch.look()
        if self.taking.failure is not None:
            raise self.taking.failure

    def _turn(self, ticks: Ticks | None) -> None:
        """What is due now: a tick, what came on the tapes, a failed batch, operators' acts."""
        self.taking.hand_over()
        due = self.failure is not None or bool(self.flow.waiting)
        if ticks is None and due:
            self._guarded_advance()
        elif ticks is not None and ticks.due(self._clock()):
            self._tick(ticks)
        else:
            self._rests()
        answer_all(self.layout, self._still)
        self._say()

    def _tick(self, ticks: Ticks) -> None:
        """Advance, and note which share of the interval that takes."""
        status = self._reports.status
        tick = Tick.begun(ticks.every.total_seconds(), status.tick, self._clock())
        status.tick = tick
        self._guarded_advance()
        now = self._clock()
        ticks.done(now)
        status.tick, status.overruns = tick.ended(now), ticks.overruns

    def _guarded_advance(self) -> None:
        """Advance; a flow that fails is tried again later and never stops intake."""
        if self._rests() or not self.supervisor.may_try(FLOW):
            return
        try:
            with self._reports.noting_failure(self.flow):
                self._advance()
            self.supervisor.works(FLOW)
        except Exception as error:  # noqa: BLE001 - whatever stops the flow must not stop intake
            self.supervisor.failed(FLOW, error, self.flow.at_work)
            self._say()

    def _advance(self) -> list[Published]:
        self.taking.flow_works = True
        try:
            return self._batches()
        finally:
            self.taking.flow_works = False

    def _batches(self) -> list[Published]:
        done: list[Published] = []
        while self.flow.waiting and not self._stop.is_set():
            published = self.flow.advance(limit=1)
            if not published:
                break
            done += published
            self._reports.note(published[0])
            for one in self._listeners:
                one.published(published[0])
            if self._rests():
                break
            self._upkeep.after(self.flow.published_batch)
            answer_all(self.layout, self._still)
            self._say()
            self.taking.hand_over()
        return done

    def _rests(self) -> bool:
        """Whether somebody has paused the flow."""
        pause = paused(self.layout)
        self._reports.note_pause(pause)
        return pause is not None

    @contextmanager
    def _still(self) -> Iterator[None]:
        """Between two batches, with no writes by intake, tapes or books."""
        with ExitStack() as held:
            held.enter_context(self.taking.still())
            for tape in self.tapes.values():
                held.enter_context(tape.still())
            yield
            self._reports.log.say("picture", batch=self.flow.published_batch)

    def _say(self, running: bool = True) -> None:
        status = self._reports.status
        status.partitions = self.taking.lag(self._clock())
        status.sinks = self.delivering.status()
        status.retries = self.supervisor.retries
        status.incidents = [IncidentStatus.of(one) for one in self.supervisor.incidents.values()]
        self._reports.write(self.flow, self.failure, running)
