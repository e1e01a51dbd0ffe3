"""The flow: tape -> everything derived, one micro-batch at a time.

Take what is new since my position, compute, stage, check, decide, finish. The row that decides a
batch holds its input range and its output files, so position and output are one transaction.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tapeline.books import Decision, Layout, Staged
from tapeline.books.operator import DISMISS, REDRIVE, Act, OperatorTape
from tapeline.books.proof import hash_of
from tapeline.books.schemas import JOURNAL, TAPE_LEAF, with_columns
from tapeline.plan import Plan
from tapeline.run.failpoints import reach
from tapeline.run.journal import Posted, post
from tapeline.run.judging import (
    BEGINNING,
    Given,
    Judged,
    Memory,
    check_balance,
    judge_batch,
    kept_records,
    tape_records,
    with_acts,
)
from tapeline.run.ledger import Ledger
from tapeline.run.prepared import Prepared
from tapeline.run.references import References
from tapeline.run.room import Room
from tapeline.run.steps import Steps, TableStep, prepare
from tapeline.run.tape import Tape, TapeBatch
from tapeline.settings import Settings

Clock = Callable[[], datetime]
Computed = dict[str, Judged | Posted]


@dataclass(frozen=True)
class Published:
    """What one batch did."""

    batch: int
    at: datetime
    records: int
    seconds: float
    body: dict[str, Any]


Cut = dict[str, list[TapeBatch]]
# With so many records behind a batch, the next one's first steps run while it is judged.
LOOK_AHEAD_RECORDS = 20_000
# Sums of decimals of 38 digits, over any number of batches.
EXACT_DIGITS = 60
ACTS_PER_BATCH = 10_000
# Java compiles while the first batches run: they are small, and double, so that the next one's
# first steps soon run beside the current one.
FIRST_RECORDS, WARM_BATCHES = 25_000, 10


@dataclass(frozen=True)
class Begun:
    """A cut whose records are read and whose first steps have run; nothing of it is decided."""

    steps: Steps
    tapes: dict[str, Given]
    given: dict[str, Given]  # by table: its tape's records, and those that come again
    made: dict[str, pa.Table]
    acts: Sequence[Act] = ()


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
        limits = settings.flow
        self.room = Room(limits.records_per_batch, limits.target_batch_seconds)
        self._batches = 0  # since the start, as far as it matters
        self._writing: list[Future[Staged]] = []
        self._recover()

    def _prepare(self) -> Steps:
        return prepare(self._session, self.plan, self.references.rows, self.settings)

    def _recover(self) -> None:
        """Take everything from the books: at the start, and after a batch that failed half-way."""
        wait(self._writing)  # a file of the failed batch must not appear under the next one
        self.ledger = Ledger(
            self.layout.home,
            self.plan.name,
            self._schemas(),
            self.steps.fingerprints,
            self._pool,
            self._clock(),
        )
        last = self._last_body
        self.position: dict[str, int] = dict.fromkeys(self.tapes, 0) | {
            name: tape["last"] for name, tape in last.get("positions", {}).items()
        }
        self.clocks: dict[str, int] = last.get("clocks", {})
        self._acted: int = last.get("acted", 0)
        self.memories = {
            step.table.name: Memory.of(
                step, self.layout.register(step.table.name), self.settings.flow.identity_keys
            )
            for step in self.steps.tables
        }
        self._pending = {n: tape.since(self.position[n]) for n, tape in self.tapes.items()}
        self._ahead: tuple[Cut, Future[Begun]] | None = None
        self._sound = True  # what is in memory agrees with what is on disk

    def offer(self, source: str, batch: TapeBatch) -> None:
        """A tape batch has been committed; one that is known already is not taken twice."""
        pending = self._pending[source]
        if batch.number > (pending[-1].number if pending else self.position[source]):
            pending.append(batch)

    @property
    def waiting(self) -> int:
        """Records on the tape and acts of operators that the flow has not taken."""
        records = sum(b.records for batches in self._pending.values() for b in list(batches))
        return records + self.acts_waiting

    @property
    def acts_waiting(self) -> int:
        """Acts of operators that the flow has not taken."""
        return self.operator.last() - self._acted

    def waiting_of(self, source: str) -> tuple[int, datetime | None]:
        """Records of a source that the flow has not taken, and when the oldest came on the tape."""
        batches = list(self._pending[source])
        return sum(b.records for b in batches), batches[0].at if batches else None

    def booked(self, source: str) -> int:
        """The last delivery of a source that is in the books, and all before it."""
        batches = list(self._pending[source])
        return batches[0].first_delivery - 1 if batches else self.tapes[source].last_delivery

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
        return self._results(self._begin({}, acts), self.ledger.commits.next_batch, lambda *_: None)

    def warm(self) -> None:
        """Run every step once on a row of nulls: the first real batch finds compiled code."""
        steps: list[Prepared] = [step.prepared for step in self.steps.tables]
        steps += [step.prepared for step in self.steps.summaries]
        list(self._pool.map(Prepared.warm, steps))

    def close(self) -> None:
        self._pool.shutdown()

    def _cut(self, behind: Cut) -> Cut:
        """Whole tape batches up to the limits, at least one, behind those of another cut."""
        cut: Cut = {}
        records, size = 0, 0
        limits = self.settings.flow
        most = min(self.room.records, FIRST_RECORDS << self._batches)
        for source, pending in self._pending.items():
            for batch in list(pending)[len(behind.get(source, ())) :]:
                records, size = records + batch.records, size + batch.bytes
                over = records > most or size > limits.bytes_per_batch
                if cut and over:
                    return cut
                cut.setdefault(source, []).append(batch)
        return cut

    def _batch(self, cut: Cut) -> Published:
        started = time.perf_counter()
        if self.references.refresh():
            self.steps = self._prepare()
        number = self.ledger.commits.next_batch
        begun = self._begun(cut)
        self._look_ahead(cut)
        proofs = {
            source: self._pool.submit(hash_of, given.rows.drop_columns(["ordinal"]))
            for source, given in begun.tapes.items()
        }
        computed, staging = self._compute(begun, number)
        reach("computed")
        staged = [one.result() for one in staging]
        reach("staged")
        body = self._body(cut, computed, staged)
        for source, proof in proofs.items():
            body["tapes"][source]["hash"] = proof.result()
            more = [n for n in begun.tapes[source].rows.column_names if n not in TAPE_LEAF.names]
            body["tapes"][source] |= {"columns": more} if more else {}
        body["acted"] = begun.acts[-1].number if begun.acts else self._acted
        body["milliseconds"] = round((time.perf_counter() - started) * 1000)
        decision = self.ledger.decide(body, self._clock())
        reach("decided")
        self._remember(computed, decision)
        self._acted = body["acted"]
        self.ledger.finish(decision)
        reach("finished")
        at = self.ledger.publish(decision, self._clock())
        self.ledger.shorten()
        for source, batches in cut.items():
            self.position[source] = batches[-1].number
            del self._pending[source][: len(batches)]
        self._batches = min(self._batches + 1, WARM_BATCHES)
        records = sum(batch.records for batches in cut.values() for batch in batches)
        seconds = time.perf_counter() - started
        self.room.note(records, seconds)
        return Published(number, at, records, seconds, body)

    def _begun(self, cut: Cut) -> Begun:
        """What was begun ahead, if it is this cut and the steps are still the same."""
        ahead, self._ahead = self._ahead, None
        if self.operator.last() > self._acted:
            return self._begin(cut, self.operator.since(self._acted)[:ACTS_PER_BATCH])
        if ahead is not None and ahead[0] == cut:
            begun = ahead[1].result()
            if begun.steps is self.steps:
                return begun
        return self._begin(cut)

    def _begin(self, cut: Cut, acts: Sequence[Act] = ()) -> Begun:
        """Read a cut's records and run the steps that read them.

        Without acts of operators nothing here depends on state, so it may run ahead.
        """
        steps = self.steps
        tapes = {
            source: tape_records(self.tapes[source].read(batches), source)
            for source, batches in cut.items()
        }
        given: dict[str, Given] = {}
        for step in steps.tables:
            if step.faults is not None:
                found = self._with_acts(step, tapes.get(step.table.stream), acts)
                if found is not None:
                    given[step.table.name] = found
        made = {
            step.table.name: step.make(given[step.table.name].rows)
            for step in steps.tables
            if step.table.name in given
        }
        return Begun(steps, tapes, given, made, acts)

    def _with_acts(self, step: TableStep, given: Given | None, acts: Sequence[Act]) -> Given | None:
        """A table's new records, and those that operators send again or dismiss."""
        last = {act.position: act for act in acts if act.table == step.table.name}
        if not last:
            return given
        stored = self.memories[step.table.name].stored
        redriven, dismissed = (
            stored.standing([p for p, act in last.items() if act.act == word], "quarantined")
            for word in (REDRIVE, DISMISS)
        )
        places = [(p["source"], p["part"], p["at"]) for p in redriven["_position"].to_pylist()]
        stream = step.table.stream
        if step.faults is not None:
            leaf = self.tapes[stream].find([(part, at) for _, part, at in places])
            again = tape_records(_corrected(leaf, [last[p].record for p in places]), stream)
            empty = tape_records(leaf.slice(0, 0), stream)
        else:
            above = next(s for s in self.steps.tables if s.table.name == stream)
            kept = self.memories[stream].stored.standing(places, "kept")
            again = kept_records(above, kept)
            empty = kept_records(above, kept.slice(0, 0))
        return with_acts(given or empty, again, redriven, dismissed)

    def _look_ahead(self, cut: Cut) -> None:
        """With a backlog, begin the next cut while this one is judged."""
        following = self._cut(behind=cut)
        if sum(b.records for batches in following.values() for b in batches) > LOOK_AHEAD_RECORDS:
            self._ahead = (following, self._pool.submit(self._begin, following))

    def _compute(self, begun: Begun, number: int) -> tuple[Computed, list[Future[Staged]]]:
        """All results of a batch; outputs are staged as soon as they are there."""
        staging: list[Future[Staged]] = []
        computed = self._results(
            begun, number, lambda table, rows: staging.extend(self._stage(table, rows, number))
        )
        return computed, staging

    def _results(
        self, begun: Begun, number: int, made_rows: Callable[[str, pa.Table], None]
    ) -> Computed:
        """Every table in order, then the summaries side by side."""
        given: dict[str, Given] = {}
        computed: Computed = {}
        for step in begun.steps.tables:
            name = step.table.name
            rows = begun.given.get(name)
            if step.faults is None:
                rows = self._with_acts(step, given.get(step.table.stream), begun.acts)
            if rows is None:
                continue
            clock = self.clocks.get(name, BEGINNING)
            made = begun.made[name] if name in begun.made else step.make(rows.rows)
            judged = judge_batch(step, rows, made, self.memories[name], clock, number)
            check_balance(name, rows, judged)
            computed[name] = judged
            given[name] = judged.kept
            made_rows(f"silver/{name}", judged.register)
        touched = [s for s in self.steps.summaries if s.summary.stream in given]
        posted = self._pool.map(
            lambda step: post(
                step, given[step.summary.stream], number, self._clock_of(step.summary.stream)
            ),
            touched,
        )
        for summary, result in zip(touched, posted, strict=True):
            name = summary.summary.name
            computed[name] = result
            made_rows(f"gold/{name}", result.journal)
            made_rows(f"gold/{name}_links", result.links)
        return computed

    def _clock_of(self, table: str) -> int:
        """The highest event time before this batch, of the table where the records entered."""
        return self.clocks.get(self.plan.entry_of(table).name, BEGINNING)

    def _stage(self, table: str, rows: pa.Table, number: int) -> list[Future[Staged]]:
        if not rows.num_rows:
            return []
        self._writing = [one for one in self._writing if not one.done()]
        self._writing.append(self._pool.submit(self.ledger.stage, table, rows, number))
        return self._writing[-1:]

    @property
    def _last_body(self) -> dict[str, Any]:
        """What the last batch says of itself and of all before it."""
        last = self.ledger.commits.last
        return last.body if last else {}

    def _body(self, cut: Cut, computed: Computed, staged: list[Staged]) -> dict[str, Any]:
        ranges = {
            source: {
                "first": batches[0].number,
                "last": batches[-1].number,
                "records": sum(batch.records for batch in batches),
                "arrived_at": batches[0].at.isoformat(),
                "listed": str(sum(batch.hash for batch in batches)),
            }
            for source, batches in cut.items()
        }
        before = self._last_body
        clocks = {n: r.clock for n, r in computed.items() if isinstance(r, Judged)}
        return {
            "tapes": ranges,
            "positions": before.get("positions", {})
            | {source: {"last": item["last"]} for source, item in ranges.items()},
            "references": dict(self.references.versions),
            "files": [item.facts() for item in staged],
            "tables": {name: result_facts(result) for name, result in computed.items()},
            "clocks": self.clocks | clocks,
            "totals": add_totals(before.get("totals", {}), computed),
        }

    def _remember(self, computed: Computed, decision: Decision) -> None:
        for name, result in computed.items():
            if isinstance(result, Judged):
                self.clocks[name] = result.clock
                self.memories[name].remember(decision.batch, result)

    def _schemas(self) -> dict[str, pa.Schema]:
        found: dict[str, pa.Schema] = {}
        for table in self.steps.tables:
            found[f"silver/{table.table.name}"] = table.register_schema
        for summary in self.steps.summaries:
            name = f"gold/{summary.summary.name}"
            found[name] = with_columns(summary.columns, JOURNAL)
            found[f"{name}_links"] = summary.links_schema
        return found


def _corrected(leaf: pa.Table, records: Sequence[bytes | None]) -> pa.Table:
    """Tape rows with the bytes that operators put in their place."""
    if not any(record is not None for record in records):
        return leaf
    raws = zip(leaf["raw"].to_pylist(), records, strict=True)
    raw = pa.array([old if new is None else new for old, new in raws], pa.binary())
    faults = zip(leaf["fault"].to_pylist(), records, strict=True)
    fault = pa.array([old if new is None else None for old, new in faults], pa.string())
    for name, values in (("raw", raw), ("fault", fault)):
        leaf = leaf.set_column(leaf.schema.get_field_index(name), name, values)
    return leaf


def add_totals(before: dict[str, Any], computed: Computed) -> dict[str, Any]:
    """What every table's counts add up to, this batch included: readers need not add them up."""
    after = dict(before)
    for name, result in computed.items():
        known = before.get(name, {})
        facts = result_facts(result)
        after[name] = {
            kind: _sum(known.get(kind, {}), facts[kind])
            for kind in ("verdicts", "causes", "reasons", "warnings")
            if kind in facts
        } | {
            kind: known.get(kind, 0) + facts[kind]
            for kind in ("entries", "counted", "left_out")
            if kind in facts
        }
        if isinstance(result, Posted):
            after[name]["measures"] = {
                measure: _exactly(known.get("measures", {}).get(measure, "0"), value)
                for measure, value in result.measures.items()
            }
    return after


def _exactly(one: str, other: str) -> str:
    with localcontext() as context:
        context.prec = EXACT_DIGITS
        return str(Decimal(one) + Decimal(other))


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return {word: count for word, count in total.items() if count}


def result_facts(result: Judged | Posted) -> dict[str, Any]:
    """What a commits row says of one table's batch."""
    if isinstance(result, Posted):
        return {
            "rows": result.journal.num_rows,
            "entries": result.entries,
            "counted": result.counted,
            "left_out": result.left_out,
            "measures": result.measures,
        }
    return {
        "rows": result.register.num_rows,
        "verdicts": dict(result.verdicts),
        "causes": dict(result.causes),
        "reasons": dict(result.reasons),
        "warnings": dict(result.warnings),
    }
