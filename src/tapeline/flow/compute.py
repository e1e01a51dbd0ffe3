"""Computing a batch: every table in order, then the summaries, until all that count can be posted.

A record on which a step fails is quarantined in that step's table; one on which a summary fails,
in the table that the summary reads. There it must not count, so the batch is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import pyarrow as pa

from tapeline.books.position import Position, position_of
from tapeline.books.schemas import BEGINNING
from tapeline.books.table_id import TableId
from tapeline.errors import OperationError
from tapeline.flow.commit import Computed
from tapeline.flow.culprits import Culprits, at_fault, make
from tapeline.flow.inputs import BatchInput, InputReader
from tapeline.flow.posting import SummaryResult, post
from tapeline.flow.progress import batch_at_work
from tapeline.flow.step_input import StepInput
from tapeline.flow.steps import Failure, SummaryStep
from tapeline.flow.table import check_balance, decide_table
from tapeline.plan import Plan

Refused = dict[str, dict[Position, Failure]]  # by table: records on which a summary fails


@dataclass(frozen=True)
class Output:
    """Where the rows of a batch go while it is computed, and what to do if all are made again."""

    rows: Callable[[TableId, pa.Table], None]
    again: Callable[[], None]


NOWHERE = Output(lambda *_: None, lambda: None)


@dataclass(frozen=True)
class Batch:
    """One batch to be computed; nothing here changes what is in memory or on disk."""

    plan: Plan
    beginning: InputReader
    begun: BatchInput
    number: int
    clocks: Mapping[str, int]

    def compute(self, pool: Executor, output: Output) -> Computed:
        """Every table in order, then the summaries side by side; what is made goes out at once."""
        refused: Refused = {}
        while True:
            computed, given = self._tables(refused, output)
            touched = [s for s in self.begun.steps.summaries if s.summary.stream in given]
            results = list(pool.map(self._posted, touched, [given] * len(touched)))
            culprits = [one for one in results if isinstance(one, Culprits)]
            if not culprits:
                break
            for one in culprits:
                if one.table in self.begun.above:
                    raise self._not_in(one)
                refused.setdefault(one.table, {}).update(one.failed)
            self._refuse_too_many(refused)
            output.again()
        for summary, result in zip(touched, results, strict=True):
            assert isinstance(result, SummaryResult)
            name = summary.summary.name
            computed[name] = result
            generation = self.begun.steps.generation(name)
            output.rows(TableId.journal(name, generation), result.journal)
            output.rows(TableId.links(name, generation), result.links)
        return computed

    def _tables(self, refused: Refused, output: Output) -> tuple[Computed, dict[str, StepInput]]:
        begun, beginning = self.begun, self.beginning
        given = dict(begun.above)
        computed: Computed = {}
        for step in begun.steps.tables:
            name = step.table.name
            rows = begun.given.get(name)
            if step.faults is None:
                above = given.get(step.table.stream)
                rows = beginning.with_acts(begun.steps, step, above, begun.acts)
            if rows is None:
                continue
            made = begun.made.get(name) or make(step, rows, beginning.culprits)
            if name in refused:
                failed = {**made.failed, **_places(rows, refused[name], step.splits)}
                made = replace(made, failed=failed)
            clock = self.clocks.get(name, BEGINNING)
            memory = beginning.memories[name]
            judged = decide_table(step, rows, made, memory, clock, self.number)
            check_balance(name, judged)
            computed[name] = judged
            given[name] = judged.kept
            output.rows(TableId.register(name, begun.steps.generation(name)), judged.register)
        return computed, given

    def _posted(
        self, step: SummaryStep, given: Mapping[str, StepInput]
    ) -> SummaryResult | Culprits:
        batch_at_work.set(self.number)  # of this thread of the pool
        stream = step.summary.stream
        # The highest event time before this batch, of the table where the records entered.
        clock = self.clocks.get(self.plan.entry_of(stream).name, BEGINNING)
        try:
            return post(step, given[stream], self.number, clock, self.beginning.culprits)
        except Culprits as found:
            return found

    def _not_in(self, found: Culprits) -> OperationError:
        """A summary that is added to a table fails on a record that the table has kept."""
        place, failure = next(iter(found.failed.items()))
        return OperationError(
            f"{failure.reason}, on the record {place.text} that table '{found.table}' has kept. "
            f"{failure.words} Change the summary so that it can count every record of the table."
        )

    def _refuse_too_many(self, refused: Refused) -> None:
        for name, failed in refused.items():
            if len(failed) > self.beginning.culprits:
                place, failure = next(iter(failed.items()))
                table = self.plan.pipeline.tables[name]
                raise at_fault(table, place, failure, self.beginning.culprits)


def _places(
    given: StepInput, refused: Mapping[Position, Failure], splits: bool
) -> dict[int, Failure]:
    """The records of a batch at some positions; of rows of a message, the message."""
    wanted = {(place.whole if splits else place): one for place, one in refused.items()}
    places = map(position_of, given.positions.to_pylist())
    return {record: wanted[place] for record, place in enumerate(places) if place in wanted}
