"""Changing the code of books: compare, build what is new, and let it stand by one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import pyarrow as pa

from tapeline.books import Books, Decision, Layout
from tapeline.books.builds import (
    Build,
    builds,
    folder_of,
    last_decision,
    standing_generations,
    start,
    unfinished,
)
from tapeline.books.code import described_code, store_code
from tapeline.books.commit import Applied, Commit, Stood
from tapeline.books.commits import read_tail
from tapeline.books.meanings import Differences, differences
from tapeline.books.preview import Preview
from tapeline.books.reader import ReadPoint
from tapeline.books.references import rows_by_name, version_rows
from tapeline.books.table_id import TableId
from tapeline.books.way_back import WayBack, find_way_back
from tapeline.errors import OperationError, TapelineBug
from tapeline.failpoints import hit
from tapeline.flow.ledger import Ledger, LedgerPlace
from tapeline.flow.rebuild import BuildPlace, Progress, Rebuild
from tapeline.flow.steps import Compile, Steps
from tapeline.plan import Plan
from tapeline.plan.changes import RETIRED, Known, StepChange, compare
from tapeline.plan.views import refuse_wrong_views
from tapeline.settings import Settings
from tapeline.store.delta_files import stored_schema

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class Signed:
    """Who changes the code, and why."""

    who: str
    note: str = ""


class Change:
    """What a file changes in the books of its pipeline. Use it as a context manager."""

    def __init__(
        self, compile_steps: Compile, plan: Plan, settings: Settings, clock: Clock
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.layout = Layout(settings.home(plan.name))
        self._compile = compile_steps
        self._clock = clock
        self._compiled: dict[tuple[tuple[str, int], ...], Steps] = {}
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="build")

    def __enter__(self) -> Change:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    @cached_property
    def differences(self) -> Differences:
        """The steps whose fingerprints are not those of the books."""
        last = last_decision(self.layout)
        if last is None:
            return Differences()
        steps = replace(self.steps_at({}), generations=standing_generations(self.layout, self.plan))
        return differences(self.layout.home, last, steps.code, steps.schemas)

    @property
    def changes(self) -> list[StepChange]:
        """The steps that are added, retired, changed, or built again with one that is."""
        last = last_decision(self.layout)
        if last is None:
            return []
        found = self.differences
        known = {*self.steps_at({}).fingerprints} - {*found.added} | {*found.retired}
        described = described_code(self.layout, last.commit)
        return compare(self.plan, Known(known, described, found.changed))

    def steps_at(self, versions: Mapping[str, int]) -> Steps:
        """All steps, with the references of these versions; one without a version is as it is."""
        wanted = self.plan.pipeline.references
        key = tuple(sorted((name, versions.get(name, 0)) for name in wanted))
        if key not in self._compiled:
            self._compiled[key] = self._compile({n: self._reference(n, v) for n, v in key})
        return self._compiled[key]

    def _reference(self, name: str, version: int) -> pa.Table:
        if version:
            found = version_rows(self.layout.reference(name), version)
            if found is not None:
                return found
        return self.references[name]

    @cached_property
    def references(self) -> Mapping[str, pa.Table]:
        """The references as they are now."""
        return rows_by_name(self.plan, self.settings.project, self.settings)

    def begin(self, signed: Signed) -> Build:
        """The build of these changes: a new one, or the one that is under way."""
        steps = self.steps_at({})
        steps.refuse_cuts()
        facts = {name: rows.schema for name, rows in self.references.items()}
        refuse_wrong_views(self.plan.pipeline, {**facts, **steps.shapes})
        last = last_decision(self.layout)
        assert last is not None
        standing = last.commit.generation
        going = unfinished(self.layout)
        if going is not None:
            if going.fingerprints == steps.fingerprints and going.base == standing:
                return going
            raise OperationError(
                f"generation {going.generation} is being built from other code since {going.at}. "
                "Go back to that code and run 'tapeline apply' again, or remove what was built "
                "with 'tapeline apply --abandon'."
            )
        known = [one.generation for one in builds(self.layout)]
        changed = {one.name: one.change for one in self.changes}
        build = Build(
            generation=max([standing, *known]) + 1,
            base=standing,
            at=self._clock().isoformat(),
            who=signed.who,
            steps=changed,
            fingerprints=steps.fingerprints,
            code=store_code(self.layout, self.plan),
        )
        back = self.way_back(changed)
        if back is not None:
            build = build.model_copy(update={"first": back.first, "continued": back.generations})
        found = start(self.layout, build)
        hit("build_begun")
        return found

    def way_back(self, changed: Mapping[str, str]) -> WayBack | None:
        """The earlier generation that the file's code had written, if it is still there."""
        last = last_decision(self.layout)
        built = [name for name, change in changed.items() if change != RETIRED]
        if last is None or not built:
            return None
        return find_way_back(
            self.layout, self.plan, last.commit, self.steps_at({}).fingerprints, built
        )

    def follow(self, build: Build) -> Iterator[Progress]:
        """Build every published batch that the build lacks."""
        if not build.built:
            return
        place = BuildPlace(self.plan, self.settings, self.layout, build)
        rebuild = Rebuild(place, self.steps_at, self._pool, self._clock)
        published = [row.batch for row in read_tail(self.layout.commits) if row.publishes]
        yield from rebuild.follow(published[-1] if published else 0)

    def switch(self, build: Build, signed: Signed) -> Decision:
        """Let the build stand, by one row. The caller holds the books' lock."""
        ledger = self._ledger(build.code)
        last = ledger.commits.last
        assert last is not None
        built = last_built(self.layout, build)
        if build.built and (built is None or built.batch != last.batch):
            reached = built.batch if built else 0
            raise TapelineBug(
                f"generation {build.generation} is at batch {reached}, not {last.batch}"
            )
        proof = built.hash if built else ""
        applied = Applied(who=signed.who, note=signed.note, steps=build.steps, built=proof)
        commit = _switched(last, built.commit if built else Commit(), build)
        decision = ledger.decide(commit.model_copy(update={"applied": applied}), self._clock())
        hit("switch_decided")
        ledger.publish(decision, self._clock())
        return decision

    def preview(self, build: Build, days: int | None = None) -> Preview:
        """What the build would move if it were let stand now."""
        rows = {row.batch: row for row in read_tail(self.layout.commits) if row.decides}
        built = last_built(self.layout, build)
        last = rows[built.batch if built else max(rows)].decision
        commit = _switched(last, built.commit if built else Commit(), build)
        then = ReadPoint(last.batch, None, last.commit)
        now = ReadPoint(last.batch + 1, None, commit)
        return Preview(Books(self.plan, self.layout.home), then, now, build, days)

    def finish(self) -> None:
        """Finish what the books have decided. The caller holds their lock."""
        self._ledger("")

    def _ledger(self, code: str) -> Ledger:
        """The books' own commits, with what is decided finished, whatever code decided it."""
        last = last_decision(self.layout)
        staged = [TableId.at(path) for path in last.staged] if last else []
        schemas = {table: stored_schema(self.layout.table(table)) for table in staged}
        place = LedgerPlace(self.layout.home, self.plan.name, any_code=True)
        made = replace(self.steps_at({}).code, described=code)
        return Ledger(place, schemas, made, self._pool, self._clock())


def last_built(layout: Layout, build: Build) -> Decision | None:
    """The last batch of the books that a build has followed."""
    rows = read_tail(folder_of(layout, build.generation) / "commits")
    published = {row.batch for row in rows if row.publishes}
    decided = [row for row in rows if row.decides and row.batch in published]
    return decided[-1].decision if decided else None


def _switched(last: Decision, built: Commit, build: Build) -> Commit:
    """What stands from now on: the numbers of the build in the place of the earlier ones."""
    before, batch = last.commit, last.batch + 1
    stood = dict(before.generations)
    for name, change in build.steps.items():
        known = name in before.fingerprints or name in stood
        number = 0 if change == RETIRED else build.number_of(name)
        earlier = before.stood(name) if known else []
        stood[name] = [*earlier, Stood(generation=number, since=batch)]
    return Commit(
        positions=before.positions,
        references=before.references,
        clocks={n: c for n, c in before.clocks.items() if n not in build.steps} | built.clocks,
        totals={n: c for n, c in before.totals.items() if n not in build.steps} | built.totals,
        acted=before.acted,
        generation=build.generation,
        generations=stood,
    )
