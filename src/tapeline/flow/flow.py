"""The flow: tape -> everything derived, one micro-batch at a time.

Take what is new since my position, compute, stage, check, decide, finish. The row that decides a
batch holds its input range and its output files, so position and output are one transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from tapeline.books import Decision, Layout, StagedFile
from tapeline.books.builds import standing_generations
from tapeline.books.code import store_code
from tapeline.books.commit import Commit
from tapeline.books.operator import Act, OperatorTape
from tapeline.books.references import References
from tapeline.books.table_id import TableId
from tapeline.books.tape import Tape
from tapeline.books.tape_batches import TapeBatch
from tapeline.failpoints import hit
from tapeline.flow.backlog import Backlog, TapeRanges, records_of
from tapeline.flow.batch_size import BatchSize
from tapeline.flow.commit import Computed, Taken, commit_of, tape_range
from tapeline.flow.compute import NOWHERE, Batch, Output
from tapeline.flow.inputs import BatchInput, InputReader
from tapeline.flow.ledger import Ledger, LedgerPlace
from tapeline.flow.progress import Published, SourceProgress, Stopwatch, batch_at_work
from tapeline.flow.steps import Compile, Compute, StepFailedError, Steps, TableStep
from tapeline.flow.table import TableResult, TableState
from tapeline.plan import Plan
from tapeline.plan.views import refuse_wrong_views
from tapeline.settings import Settings
from tapeline.store.duckdb import newest_batch
from tapeline.store.recovery import Recovery

Clock = Callable[[], datetime]
# With this many records waiting, the first steps of the next batch run during the current one.
LOOK_AHEAD_RECORDS = 20_000
ACTS_PER_BATCH = 10_000
# Java compiles while the first batches run: they are small, and double, so that the next one's
# first steps soon run beside the current one.
FIRST_RECORDS, WARM_BATCHES = 25_000, 10


class Flow:
    """One flow per pipeline. Its position is in its books; it has no checkpoint."""

    def __init__(
        self,
        compile_steps: Compile,
        plan: Plan,
        settings: Settings,
        tapes: dict[str, Tape],
        clock: Clock,
        steps: Steps | None = None,
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.tapes = tapes
        self._compile = compile_steps
        self._clock = clock
        self._busy = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="books")
        self.layout = Layout(settings.home(plan.name))
        self.references = References(plan, self.layout, settings, clock)
        # Steps that were prepared for the same plan and references may be given.
        self._generations = standing_generations(self.layout, plan)
        self._described = store_code(self.layout, plan)
        self.steps: Steps = (
            replace(steps, generations=self._generations) if steps else self._prepare()
        )
        self.operator = OperatorTape(self.layout.operator)
        self.room = BatchSize(settings.flow.records_per_batch, settings.flow.target_batch_seconds)
        self._batches = 0  # since the start, as far as it matters
        self._writing: list[Future[StagedFile]] = []
        self.memories: dict[str, TableState] = {}
        self._remembered: str | None = None  # the hash of the last batch that is in them
        if not newest_batch(self.layout.commits):
            self.steps.refuse_cuts()  # books that hold such numbers already go on as they are
            self._refuse_views()
        self._recovery = Recovery(self._recover)
        self._recovery.ensure()
        self.references.follow()

    def _prepare(self) -> Steps:
        return replace(self._compile(self.references.rows), generations=self._generations)

    def _register_of(self, step: TableStep) -> Path:
        name = step.table.name
        return self.layout.register(name, self.steps.generation(name))

    def _refuse_views(self) -> None:
        facts = {name: rows.schema for name, rows in self.references.rows.items()}
        refuse_wrong_views(self.plan.pipeline, {**facts, **self.steps.shapes})

    def _recover(self) -> None:
        """Reload state from the books, at start and after a failed batch."""
        wait(self._writing)  # a file of the failed batch must not appear under the next one
        self.ledger = Ledger(
            LedgerPlace(self.layout.home, self.plan.name),
            self.steps.schemas,
            replace(self.steps.code, described=self._described),
            self._pool,
            self._clock(),
        )
        decided = self.ledger.commits.last.hash if self.ledger.commits.last else ""
        if self._remembered != decided:  # a batch that failed undecided left nothing in memory
            self.memories = {
                step.table.name: TableState.of(
                    step, self._register_of(step), self.settings.flow.identity_keys
                )
                for step in self.steps.tables
            }
            self._remembered = decided
        culprits = self.settings.flow.culprits_per_batch
        self._beginning = InputReader(self.tapes, self.memories, culprits)
        booked = {name: position.last for name, position in self._last.positions.items()}
        self.backlog = Backlog(self.tapes, booked)
        self._ahead: tuple[TapeRanges, Future[BatchInput]] | None = None

    def advance(self, limit: int | None = None) -> list[Published]:
        """Process waiting tape batches. Returns at once if another thread is doing so."""
        done: list[Published] = []
        while self.waiting and (limit is None or len(done) < limit):
            if not self._busy.acquire(blocking=False):
                return done
            try:
                self._recovery.ensure()
                if not self.waiting:
                    break
                cut = self._ahead[0] if self._ahead else self._cut({})
                with self._recovery.step():
                    done.append(self._batch(cut))
            finally:
                self._busy.release()
        return done

    def _batch(self, cut: TapeRanges) -> Published:
        """Compute, stage, decide, finish: one row of commits makes all of it real, or nothing."""
        watch = Stopwatch()
        if self.references.refresh():
            self.steps = self._prepare()
        number = self.ledger.commits.next_batch
        batch_at_work.set(number)
        begun = self._begun(cut)
        watch.lap("read")
        self._look_ahead(cut)
        ranges = {
            source: self._pool.submit(tape_range, cut[source], given)
            for source, given in begun.tapes.items()
        }
        staging: list[Future[StagedFile]] = []
        output = Output(
            lambda table, rows: staging.extend(self._stage(table, rows, number)), staging.clear
        )
        computed = self._computing(begun).compute(self._pool, output)
        hit("computed")
        staged = [one.result() for one in staging]
        hit("staged")
        tapes = {source: facts.result() for source, facts in ranges.items()}
        acted = begun.acts[-1].number if begun.acts else self._last.acted
        taken = Taken(tapes, self.references.versions, acted)
        watch.lap("compute")
        commit = commit_of(self._last, taken, computed, staged, round(watch.seconds * 1000))
        decision = self.ledger.decide(commit, self._clock())
        watch.lap("decide")
        hit("decided")
        self._remember(computed, decision)
        self.ledger.finish(decision)
        hit("finished")
        at = self.ledger.publish(decision, self._clock())
        self.ledger.shorten()
        watch.lap("finish")
        self.backlog.take(cut)
        self._batches = min(self._batches + 1, WARM_BATCHES)
        records, seconds = records_of(cut), watch.seconds
        self.room.note(records, seconds)
        return Published(number, at, records, seconds, self._progress(cut), watch.milliseconds)

    def _progress(self, cut: TapeRanges) -> tuple[SourceProgress, ...]:
        return tuple(
            SourceProgress(
                source,
                batches[0].number,
                batches[-1].number,
                self.tapes[source].last_batch,
                sum(batch.records for batch in batches),
            )
            for source, batches in cut.items()
        )

    def _cut(self, after: TapeRanges) -> TapeRanges:
        """Select whole tape batches up to the limits, starting after `after`."""
        most = min(self.room.records, FIRST_RECORDS << self._batches)
        return self.backlog.cut(most, self.settings.flow.bytes_per_batch, after)

    def _begun(self, cut: TapeRanges) -> BatchInput:
        """The batch prepared ahead, if it matches; otherwise prepare it now."""
        ahead, self._ahead = self._ahead, None
        if self.operator.last() > self._last.acted:
            acts = self.operator.since(self._last.acted)[:ACTS_PER_BATCH]
            return self._beginning.begin(self.steps, cut, acts)
        if ahead is not None and ahead[0] == cut:
            begun = ahead[1].result()
            if begun.steps is self.steps:
                return begun
        return self._beginning.begin(self.steps, cut)

    def _look_ahead(self, cut: TapeRanges) -> None:
        """With a backlog, prepare the next batch in the background."""
        following = self._cut(after=cut)
        if records_of(following) > LOOK_AHEAD_RECORDS:
            number = self.ledger.commits.next_batch + 1
            begun = self._pool.submit(self._begin_ahead, number, self.steps, following)
            self._ahead = (following, begun)

    def _begin_ahead(self, number: int, steps: Steps, cut: TapeRanges) -> BatchInput:
        batch_at_work.set(number)  # of this thread of the pool
        return self._beginning.begin(steps, cut)

    def _computing(self, begun: BatchInput) -> Batch:
        number = self.ledger.commits.next_batch
        return Batch(self.plan, self._beginning, begun, number, self._last.clocks)

    def _stage(self, table: TableId, rows: pa.Table, number: int) -> list[Future[StagedFile]]:
        if not rows.num_rows:
            return []
        self._writing = [one for one in self._writing if not one.done()]
        self._writing.append(self._pool.submit(self.ledger.stage, table, rows, number))
        return self._writing[-1:]

    def _remember(self, computed: Computed, decision: Decision) -> None:
        for name, result in computed.items():
            if isinstance(result, TableResult):
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
        return self.operator.last() - self._last.acted

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
        ranges = [f"{s} tape batches {a} to {b}" for s, (a, b) in self.next_ranges.items()]
        return f"batch {self.ledger.commits.next_batch}: {', '.join(ranges) or 'operator actions'}"

    @property
    def next_ranges(self) -> dict[str, tuple[int, int]]:
        """Its first and last tape batch of each source."""
        return {s: (found[0].number, found[-1].number) for s, found in self._cut({}).items()}

    def rehearse(self, acts: Sequence[Act]) -> Computed:
        """What acts would do by themselves; nothing is staged or decided."""
        begun = self._beginning.begin(self.steps, {}, acts)
        return self._computing(begun).compute(self._pool, NOWHERE)

    def warm(self) -> None:
        """Run every step once on a row of nulls: the first real batch finds compiled code."""
        steps: list[Compute] = [step.prepared for step in self.steps.tables]
        steps += [step.prepared for step in self.steps.summaries]
        list(self._pool.map(_warmed, steps))

    def close(self) -> None:
        self.references.close()
        self._pool.shutdown()

    @property
    def _last(self) -> Commit:
        """What the last batch says of itself and of all before it."""
        last = self.ledger.commits.last
        return last.commit if last else Commit()


def _warmed(step: Compute) -> None:
    """A step may well fail on a row of nulls: it was compiled all the same."""
    with suppress(StepFailedError):
        step.warm()
