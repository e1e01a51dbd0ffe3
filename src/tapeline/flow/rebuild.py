"""Building another generation of some tables: the same batches again, with other steps.

Every batch of the books is computed once more, from the tape or from the stored rows of a table
that has not changed, with the acts and the references that it had. So a build holds what the new
steps would have written from the first record on. It has commits of its own and goes on where it
was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from tapeline.books import Layout, StagedFile
from tapeline.books.builds import Build, folder_of, last_decision, rows_of_generation
from tapeline.books.commit import Commit, Stood
from tapeline.books.commits import read_commits
from tapeline.books.operator import OperatorTape
from tapeline.books.stored_tape import StoredTape
from tapeline.books.table_id import TableId
from tapeline.failpoints import hit
from tapeline.flow.backlog import TapeRanges
from tapeline.flow.commit import Taken, commit_of
from tapeline.flow.compute import Batch, Output
from tapeline.flow.inputs import InputReader
from tapeline.flow.ledger import Ledger, LedgerPlace
from tapeline.flow.standing_rows import StandingRows
from tapeline.flow.step_input import StepInput
from tapeline.flow.steps import Steps, TableStep
from tapeline.flow.stored_input import stored_inputs
from tapeline.flow.table import TableResult, TableState
from tapeline.plan import Plan
from tapeline.settings import Settings
from tapeline.store.housekeeping import tidy

BATCHES_AT_ONCE, RECORDS_AT_ONCE = 500, 200_000
StepsAt = Callable[[Mapping[str, int]], Steps]  # all steps, with these versions of references


@dataclass(frozen=True)
class BuildPlace:
    """Whose books, and what is built in them."""

    plan: Plan
    settings: Settings
    layout: Layout
    build: Build


@dataclass(frozen=True)
class Progress:
    """How far a build is."""

    batch: int
    of: int
    records: int
    seconds: float


class Rebuild:
    """A build at work. One process at a time; the books may be written by another."""

    def __init__(
        self, place: BuildPlace, steps_at: StepsAt, pool: Executor, clock: Callable[[], datetime]
    ) -> None:
        self._place = place
        self._layout = place.layout
        self._names = place.build.built
        self._generations = {name: place.build.number_of(name) for name in self._names}
        self._steps_at = steps_at
        self._pool = pool
        self._clock = clock
        last = last_decision(self._layout)
        self._standing = last.commit if last else Commit()
        self._operator = OperatorTape(self._layout.operator)
        steps = self._steps({})
        code = replace(steps.code, described=place.build.code)
        folder = folder_of(self._layout, place.build.generation)
        books = LedgerPlace(self._layout.home, place.plan.name, folder, place.build.first)
        self.ledger = Ledger(books, steps.schemas, code, pool, clock())
        sources = place.plan.pipeline.sources
        self._tapes = {name: StoredTape(self._layout, name) for name in sources}
        self._memories = self._remembered(steps)
        culprits = place.settings.flow.culprits_per_batch
        self._reader = InputReader(self._tapes, self._memories, culprits)
        self._earlier = self._built_before(steps)
        self._continued = self._commit_before(place.build.first)

    @property
    def reached(self) -> int:
        """The last batch of the books that is built."""
        return self.ledger.commits.next_batch - 1

    @property
    def last(self) -> Commit:
        """What the build says of itself, and of what it continues."""
        last = self.ledger.commits.last
        return last.commit if last else self._continued

    def follow(self, until: int) -> Iterator[Progress]:
        """Build all batches through this one."""
        while self.reached < until:
            first = self.reached + 1
            rows = self._next_rows(until)
            above = self._stored_inputs(first, max(rows))
            self._load_tapes(list(rows.values()))
            before = self._commit_before(first)
            for number, commit in rows.items():
                started = time.perf_counter()
                self._batch(number, commit, before, above.get(number, {}))
                before = commit
                seconds = time.perf_counter() - started
                yield Progress(number, until, commit.records, seconds)

    def _next_rows(self, until: int) -> dict[int, Commit]:
        """The next batches of the books, as many as are read together."""
        first = self.reached + 1
        found: dict[int, Commit] = {}
        records = 0
        for row in read_commits(self._layout.commits, first, min(until, first + BATCHES_AT_ONCE)):
            if row.decides:
                found[row.batch] = row.commit
                records += row.commit.records
                if records > RECORDS_AT_ONCE:
                    break
        return found

    def _commit_before(self, batch: int) -> Commit:
        rows = read_commits(self._layout.commits, batch - 1, batch - 1) if batch > 1 else []
        return next((row.commit for row in rows if row.decides), Commit())

    def _batch(
        self, number: int, commit: Commit, before: Commit, above: Mapping[str, StepInput]
    ) -> None:
        """One batch of the books, computed once more, and decided in the build."""
        started = time.perf_counter()
        steps = self._steps(commit.references)
        for step in steps.above:
            self._memories[step.table.name].stored.until = number - 1
        acts = []
        if commit.acted > before.acted:
            acts = [a for a in self._operator.since(before.acted) if a.number <= commit.acted]
        begun = self._reader.begin(steps, self._cut(steps, commit), acts)
        begun = replace(begun, above=above)
        staging: list[Future[StagedFile]] = []

        def stage(table: TableId, rows: pa.Table) -> None:
            if rows.num_rows:
                staging.append(self._pool.submit(self.ledger.stage, table, rows, number))

        clocks = {**self._clocks_before(number, before), **self.last.clocks}
        batch = Batch(self._place.plan, self._reader, begun, number, clocks)
        computed = batch.compute(self._pool, Output(stage, staging.clear))
        staged = [one.result() for one in staging]
        hit("build_staged")
        taken = Taken({}, commit.references, commit.acted)
        milliseconds = round((time.perf_counter() - started) * 1000)
        made = commit_of(self.last, taken, computed, staged, milliseconds)
        decision = self.ledger.decide(self._marked(made), self._clock())
        hit("build_decided")
        for name, result in computed.items():
            if isinstance(result, TableResult):
                self._memories[name].remember(number, result)
        self.ledger.finish(decision)
        hit("build_finished")
        self.ledger.publish(decision, self._clock())
        self.ledger.shorten()
        housekeeping = self._place.settings.housekeeping
        if number % housekeeping.compact_every_batches == 0:
            for book in (*self.ledger.books.values(), self.ledger.commits.book):
                tidy(book, housekeeping)

    def _steps(self, references: Mapping[str, int]) -> Steps:
        steps = self._steps_at(references)
        return replace(steps.only(self._names), generations=self._generations)

    def _marked(self, commit: Commit) -> Commit:
        """A row that says of which generation it tells."""
        stood = {n: [Stood(generation=g, since=0)] for n, g in self._generations.items()}
        told = {"generation": self._place.build.generation, "generations": stood}
        own = {
            field: {n: v for n, v in getattr(commit, field).items() if n in self._names}
            for field in ("totals", "clocks")
        }
        return commit.model_copy(update={**told, **own})

    def _load_tapes(self, commits: Sequence[Commit]) -> None:
        """Read what some batches took from the tapes that are read again."""
        steps = self._steps({})
        for source in {step.table.stream for step in steps.tables if step.faults is not None}:
            parts = [commit.tapes[source] for commit in commits if source in commit.tapes]
            if parts:
                self._tapes[source].load(parts[0].first, parts[-1].last)

    def _cut(self, steps: Steps, commit: Commit) -> TapeRanges:
        """The tape batches that a batch took, of the sources that are read again."""
        wanted = {step.table.stream for step in steps.tables if step.faults is not None}
        return {
            source: self._tapes[source].batches(part.first, part.last)
            for source, part in commit.tapes.items()
            if source in wanted
        }

    def _stored_inputs(self, first: int, last: int) -> dict[int, dict[str, StepInput]]:
        """What unchanged tables give to the steps, by batch and table."""
        steps = self._steps({})
        readers = [s.table.stream for s in steps.tables] + [
            s.summary.stream for s in steps.summaries
        ]
        found: dict[int, dict[str, StepInput]] = {}
        for step in steps.above:
            name = step.table.name
            if name in readers:
                for batch, given in stored_inputs(step, self._folder(step), (first, last)):
                    found.setdefault(batch, {})[name] = given
        return found

    def _remembered(self, steps: Steps) -> dict[str, TableState]:
        """What is known of earlier batches: by the tables that are built, and by the others."""
        keys = self._place.settings.flow.identity_keys
        found = {s.table.name: TableState.of(s, self._folder(s), keys) for s in steps.tables}
        for step in steps.above:
            stored = StandingRows(self._folder(step), step.register_schema)
            found[step.table.name] = TableState(None, stored)
        return found

    def _folder(self, step: TableStep) -> Path:
        """A table's register: that of the build, or the one that readers see."""
        name = step.table.name
        standing = self._standing.generation_of(name)
        return self._layout.register(name, self._generations.get(name, standing))

    def _built_before(self, steps: Steps) -> dict[str, dict[int, Commit]]:
        """What earlier builds say of the tables that are not built now, by table and batch."""
        found = {}
        for step in steps.above:
            name, generation = step.table.name, self._standing.generation_of(step.table.name)
            if generation > 1:
                found[name] = rows_of_generation(self._layout, name, generation)
        return found

    def _clocks_before(self, number: int, before: Commit) -> dict[str, int]:
        """The clocks of tables that are not built, as their generation had them."""
        found = dict(before.clocks)
        for name, rows in self._earlier.items():
            found.pop(name, None)
            if number - 1 in rows and name in rows[number - 1].clocks:
                found[name] = rows[number - 1].clocks[name]
        return found
