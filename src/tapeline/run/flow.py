"""The flow: tape -> everything derived, one micro-batch at a time.

Take what is new since my position, compute, stage, check, decide, finish. The row that decides a
batch holds its input range and its output files, so position and output are one transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tapeline.books import Decision, Layout, Staged
from tapeline.books.operator import Act, OperatorTape
from tapeline.plan import Plan
from tapeline.run.backlog import Backlog, Cut, records_of
from tapeline.run.begin import Beginning, Begun
from tapeline.run.body import Body, Computed, body_of, tape_facts
from tapeline.run.failpoints import reach
from tapeline.run.journal import Posted, post
from tapeline.run.judging import BEGINNING, Given, Judged, Memory, check_balance, judge_batch
from tapeline.run.ledger import Ledger
from tapeline.run.prepared import Prepared
from tapeline.run.references import References
from tapeline.run.room import Room
from tapeline.run.steps import Steps, SummaryStep, prepare
from tapeline.run.tape import Tape, TapeBatch
from tapeline.settings import Settings

Clock = Callable[[], datetime]
# With so many records behind a batch, the next one's first steps run while it is judged.
LOOK_AHEAD_RECORDS = 20_000
ACTS_PER_BATCH = 10_000
# Java compiles while the first batches run: they are small, and double, so that the next one's
# first steps soon run beside the current one.
FIRST_RECORDS, WARM_BATCHES = 25_000, 10


@dataclass(frozen=True)
class Published:
    """What one batch did."""

    batch: int
    at: datetime
    records: int
    seconds: float
    body: dict[str, Any]


class Flow:
    """One flow per pipeline; it holds its position in its own books and has no checkpoint."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        settings: Settings,
        tapes: dict[str, Tape],
        clock: Clock,
        steps: Steps | None = None,
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.tapes = tapes
        self._session = session
        self._clock = clock
        self._busy = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="books")
        self.layout = Layout(settings.home(plan.name))
        self.references = References(plan, self.layout, settings.project)
        # Steps that were prepared for the same plan and references may be given.
        self.steps: Steps = steps or self._prepare()
        self.operator = OperatorTape(self.layout.operator)
        self.room = Room(settings.flow.records_per_batch, settings.flow.target_batch_seconds)
        self._batches = 0  # since the start, as far as it matters
        self._writing: list[Future[Staged]] = []
        self.memories: dict[str, Memory] = {}
        self._remembered: str | None = None  # the hash of the last batch that is in them
        self._recover()

    def _prepare(self) -> Steps:
        return prepare(self._session, self.plan, self.references.rows, self.settings)

    def _recover(self) -> None:
        """Take everything from the books: at the start, and after a batch that failed half-way."""
        wait(self._writing)  # a file of the failed batch must not appear under the next one
        self.ledger = Ledger(
            self.layout.home,
            self.plan.name,
            self.steps.schemas,
            self.steps.fingerprints,
            self._pool,
            self._clock(),
        )
        decided = self.ledger.commits.last.hash if self.ledger.commits.last else ""
        if self._remembered != decided:  # a batch that failed undecided left nothing in memory
            self.memories = {
                step.table.name: Memory.of(
                    step, self.layout.register(step.table.name), self.settings.flow.identity_keys
                )
                for step in self.steps.tables
            }
            self._remembered = decided
        self._beginning = Beginning(self.tapes, self.memories)
        booked = self._last_body.get("positions", {})
        self.backlog = Backlog(self.tapes, {name: tape["last"] for name, tape in booked.items()})
        self._ahead: tuple[Cut, Future[Begun]] | None = None
        self._sound = True  # what is in memory agrees with what is on disk

    def advance(self, limit: int | None = None) -> list[Published]:
        """Work off what is on the tape, batch by batch; a busy flow takes it along by itself."""
        done: list[Published] = []
        while self.waiting and (limit is None or len(done) < limit):
            if not self._busy.acquire(blocking=False):
                return done
            try:
                if not self._sound:
                    self._recover()
                if not self.waiting:
                    break
                cut = self._ahead[0] if self._ahead else self._cut({})
                self._sound = False
                done.append(self._batch(cut))
                self._sound = True
            finally:
                self._busy.release()
        return done

    def _batch(self, cut: Cut) -> Published:
        """Compute, stage, decide, finish: one row of commits makes all of it real, or nothing."""
        started = time.perf_counter()
        if self.references.refresh():
            self.steps = self._prepare()
        number = self.ledger.commits.next_batch
        begun = self._begun(cut)
        self._look_ahead(cut)
        ranges = {
            source: self._pool.submit(tape_facts, cut[source], given)
            for source, given in begun.tapes.items()
        }
        staging: list[Future[Staged]] = []
        computed = self._compute(
            begun, number, lambda table, rows: staging.extend(self._stage(table, rows, number))
        )
        reach("computed")
        staged = [one.result() for one in staging]
        reach("staged")
        tapes = {source: facts.result() for source, facts in ranges.items()}
        body = body_of(self._last_body, tapes, computed, staged, self.references.versions)
        body["acted"] = begun.acts[-1].number if begun.acts else self._acted
        body["milliseconds"] = round((time.perf_counter() - started) * 1000)
        decision = self.ledger.decide(body, self._clock())
        reach("decided")
        self._remember(computed, decision)
        self.ledger.finish(decision)
        reach("finished")
        at = self.ledger.publish(decision, self._clock())
        self.ledger.shorten()
        self.backlog.take(cut)
        self._batches = min(self._batches + 1, WARM_BATCHES)
        records, seconds = records_of(cut), time.perf_counter() - started
        self.room.note(records, seconds)
        return Published(number, at, records, seconds, body)

    def _cut(self, behind: Cut) -> Cut:
        """The new tape records up to the limits, behind those of another cut."""
        most = min(self.room.records, FIRST_RECORDS << self._batches)
        return self.backlog.cut(most, self.settings.flow.bytes_per_batch, behind)

    def _begun(self, cut: Cut) -> Begun:
        """What was begun ahead, if it is this cut and the steps are still the same."""
        ahead, self._ahead = self._ahead, None
        if self.operator.last() > self._acted:
            acts = self.operator.since(self._acted)[:ACTS_PER_BATCH]
            return self._beginning.begin(self.steps, cut, acts)
        if ahead is not None and ahead[0] == cut:
            begun = ahead[1].result()
            if begun.steps is self.steps:
                return begun
        return self._beginning.begin(self.steps, cut)

    def _look_ahead(self, cut: Cut) -> None:
        """With a backlog, begin the next cut while this one is judged."""
        following = self._cut(behind=cut)
        if records_of(following) > LOOK_AHEAD_RECORDS:
            begun = self._pool.submit(self._beginning.begin, self.steps, following)
            self._ahead = (following, begun)

    def _compute(
        self, begun: Begun, number: int, made_rows: Callable[[str, pa.Table], None]
    ) -> Computed:
        """Every table in order, then the summaries side by side; what is made is staged at once."""
        given: dict[str, Given] = {}
        computed: Computed = {}
        clocks = self._last_body.get("clocks", {})
        for step in begun.steps.tables:
            name = step.table.name
            rows = begun.given.get(name)
            if step.faults is None:
                above = given.get(step.table.stream)
                rows = self._beginning.with_acts(begun.steps, step, above, begun.acts)
            if rows is None:
                continue
            made = begun.made[name] if name in begun.made else step.make(rows.rows)
            clock = clocks.get(name, BEGINNING)
            judged = judge_batch(step, rows, made, self.memories[name], clock, number)
            check_balance(name, rows, judged)
            computed[name] = judged
            given[name] = judged.kept
            made_rows(f"silver/{name}", judged.register)
        touched = [s for s in self.steps.summaries if s.summary.stream in given]

        def posted(step: SummaryStep) -> Posted:
            # The highest event time before this batch, of the table where the records entered.
            clock = clocks.get(self.plan.entry_of(step.summary.stream).name, BEGINNING)
            return post(step, given[step.summary.stream], number, clock)

        for summary, result in zip(touched, self._pool.map(posted, touched), strict=True):
            name = summary.summary.name
            computed[name] = result
            made_rows(f"gold/{name}", result.journal)
            made_rows(f"gold/{name}_links", result.links)
        return computed

    def _stage(self, table: str, rows: pa.Table, number: int) -> list[Future[Staged]]:
        if not rows.num_rows:
            return []
        self._writing = [one for one in self._writing if not one.done()]
        self._writing.append(self._pool.submit(self.ledger.stage, table, rows, number))
        return self._writing[-1:]

    def _remember(self, computed: Computed, decision: Decision) -> None:
        for name, result in computed.items():
            if isinstance(result, Judged):
                self.memories[name].remember(decision.batch, result)
        self._remembered = decision.hash

    def offer(self, source: str, batch: TapeBatch) -> None:
        """A tape batch has been committed."""
        self.backlog.add(source, batch)

    @property
    def waiting(self) -> int:
        """Records on the tape and acts of operators that the flow has not taken."""
        return self.backlog.records + self.acts_waiting

    @property
    def acts_waiting(self) -> int:
        """Acts of operators that the flow has not taken."""
        return self.operator.last() - self._acted

    @property
    def published_batch(self) -> int:
        """The last batch that readers see."""
        return self.ledger.commits.published_batch

    @property
    def published_at(self) -> datetime | None:
        return self.ledger.commits.published_at

    @property
    def at_work(self) -> str:
        """The batch that is next, and its place on the tapes."""
        cut = self._cut({})
        ranges = [f"{s} tape batches {b[0].number} to {b[-1].number}" for s, b in cut.items()]
        return f"batch {self.ledger.commits.next_batch}: {', '.join(ranges) or 'acts of operators'}"

    def rehearse(self, acts: Sequence[Act]) -> Computed:
        """What acts would do by themselves; nothing is staged or decided."""
        begun = self._beginning.begin(self.steps, {}, acts)
        return self._compute(begun, self.ledger.commits.next_batch, lambda *_: None)

    def warm(self) -> None:
        """Run every step once on a row of nulls: the first real batch finds compiled code."""
        steps: list[Prepared] = [step.prepared for step in self.steps.tables]
        steps += [step.prepared for step in self.steps.summaries]
        list(self._pool.map(Prepared.warm, steps))

    def close(self) -> None:
        self._pool.shutdown()

    @property
    def _last_body(self) -> Body:
        """What the last batch says of itself and of all before it."""
        last = self.ledger.commits.last
        return last.body if last else {}

    @property
    def _acted(self) -> int:
        """The last act of an operator that is in the books."""
        acted: int = self._last_body.get("acted", 0)
        return acted
