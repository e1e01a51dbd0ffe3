"""A pipeline driven batch by batch, without intake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from tapeline.books import Books, Layout
from tapeline.books.operator import DISMISS, REDRIVE
from tapeline.books.quarantine import Actor, decide
from tapeline.declare import Pipeline
from tapeline.plan import resolve
from tapeline.settings import HousekeepingSettings, Settings
from tapeline.store.housekeeping import tidy
from tapeline.testing.answers import quarantined, unbalanced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tapeline.books.audit import Check
    from tapeline.books.pieces import FileOrigin, PiecePart
    from tapeline.flow.flow import Flow
    from tapeline.flow.progress import Published
    from tapeline.flow.steps import Compile
    from tapeline.plan import Plan

Record = Mapping[str, Any] | str | bytes
SOMEBODY = "a test"


def spark(connectors: bool = False) -> SparkSession:
    """The session that trials share; `connectors` brings Spark's own to Kafka and Avro along."""
    from tapeline.spark.jvm import CONNECTORS
    from tapeline.spark.session import build_session

    chosen = CONNECTORS if connectors else ()
    return build_session(Settings(), "tapeline-testing", chosen, short=True)


class Trial:
    """A pipeline driven batch by batch."""

    def __init__(
        self,
        pipeline: Pipeline,
        root: Path,
        project: Path | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        like: Trial | None = None,
        compile_steps: Compile | None = None,
    ) -> None:
        """`like` is an earlier trial of the same pipeline and references: its steps are reused.

        `compile_steps` makes the steps by something else than Spark.
        """
        from tapeline.books.tape import Tape
        from tapeline.flow.flow import Flow

        self.settings = Settings(project=project or root, root=root / "books")
        self.plan = resolve(pipeline)
        self.clock = clock
        home = self.settings.home(pipeline.name)
        self._layout = Layout(home)
        self.tapes = {name: Tape(self._layout, name, clock) for name in pipeline.sources}
        steps = like.flow.steps if like else None
        make = compile_steps or _by_spark(self.plan, self.settings)
        self.flow: Flow = Flow(make, self.plan, self.settings, self.tapes, clock, steps)
        self.books = Books(self.plan, home)

    def feed(self, header: str | None = None, **batches: Iterable[Record]) -> list[Published]:
        """Put records on the tapes of their sources, one batch each, and let the flow advance."""
        for source, records in batches.items():
            self.put(source, records, header)
        return self.advance()

    def put(
        self,
        source: str,
        records: Iterable[Record],
        header: str | None = None,
        file: str | None = None,
    ) -> None:
        """Put records on the tape and leave it at that; `file` is where they came from."""
        tape = self.tapes[source]
        lines = [_encoded(record) for record in records]
        part = _part(tape.last_piece + 1, lines, header, self._origin(file))
        tape.stage([part], self.clock())
        for batch in tape.append():
            self.flow.offer(source, batch)

    def _origin(self, file: str | None) -> FileOrigin | None:
        from tapeline.books.pieces import FileOrigin

        return FileOrigin(file, int(self.clock().timestamp() * 1_000_000)) if file else None

    def advance(self, limit: int | None = None) -> list[Published]:
        """Book what is on the tapes, and first what an earlier trial left unfinished."""
        return self.flow.advance(limit)

    def read(self, name: str) -> list[dict[str, Any]]:
        """A table, summary or view as a reader sees it."""
        rows: list[dict[str, Any]] = self.arrow(name).to_pylist()
        return rows

    def arrow(self, name: str) -> pa.Table:
        return self.books.read(name)

    def verdicts(self, table: str) -> dict[str, int]:
        """How many records of a table have which verdict."""
        return dict(self.books.cut().commit.total(table).verdicts)

    def quarantine(self, table: str) -> list[dict[str, Any]]:
        """The records of a table that are in quarantine now, with their reasons."""
        rows = [r for r in self.books.register(table).to_pylist() if r["_verdict"] == "quarantined"]
        left: dict[Any, int] = {}  # by record: the last batch that took it out
        for row in rows:
            if row["_sign"] < 0:
                place = _place(row)
                left[place] = max(row["_batch"], left.get(place, 0))
        return [r for r in rows if r["_sign"] > 0 and left.get(_place(r), 0) <= r["_batch"]]

    def redrive(self, record: bytes | None = None, who: str = SOMEBODY, **chosen: Any) -> int:
        """Send quarantined records again, chosen as `quarantined` does. Returns how many."""
        rows = quarantined(self.books, **chosen)
        return self._decided(REDRIVE, rows, who, record)

    def dismiss(self, who: str = SOMEBODY, **chosen: Any) -> int:
        """Leave quarantined records out for good, chosen as `quarantined` does; how many."""
        return self._decided(DISMISS, quarantined(self.books, **chosen), who)

    def _decided(
        self, act: str, rows: list[dict[str, Any]], who: str, record: bytes | None = None
    ) -> int:
        acts = decide(self.books, act, rows, Actor(datetime.now(UTC), who), record)
        self.advance()
        return len(acts)

    def sent(self, sink: str) -> list[dict[str, Any]]:
        """What a sink sends of all batches so far, in order; nothing is delivered."""
        from tapeline.deliver import Outbox

        outbox = Outbox(self.plan, self._layout, self.plan.pipeline.sinks[sink])
        return outbox.all_rows(self.flow.published_batch)

    def unbalanced(self, full: bool = True) -> list[Check]:
        """The checks of a full audit that fail."""
        return unbalanced(self.books, full)

    def tidy(self, settings: HousekeepingSettings | None = None) -> None:
        """Housekeeping in every table and tape, as a run does it between batches."""
        said = settings or HousekeepingSettings()
        for book in (*self.flow.ledger.books.values(), self.flow.ledger.commits.book):
            tidy(book, said)
        for tape in self.tapes.values():
            tape.tidy(said, tape.last_batch)

    def close(self) -> None:
        self.flow.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _by_spark(plan: Plan, settings: Settings) -> Compile:
    from tapeline.spark.compile import compiler

    return compiler(spark(), plan, settings)


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*row["_position"].values(), row["_row"])


def _part(
    number: int, lines: list[bytes], header: str | None, file: FileOrigin | None
) -> PiecePart:
    import numpy as np

    from tapeline.books.pieces import DeliveryPart, PiecePart
    from tapeline.formats.lines import Lines

    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    numbers = np.arange(1, len(lines) + 1, dtype=np.int64)
    facts = DeliveryPart(
        number, "a test's records", None, int(lengths.sum()), len(lines), 1, len(lines), True
    )
    whole = Lines(b"".join(lines), lengths, numbers, {})
    return PiecePart(facts, (whole,), header.encode() if header else None, file=file)


def _encoded(record: Record) -> bytes:
    if isinstance(record, bytes):
        return record
    if isinstance(record, str):
        return record.encode()
    return json.dumps(record).encode()
