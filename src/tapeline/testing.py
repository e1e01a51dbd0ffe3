"""Helpers for tests of pipelines: tables drawn as text, batches in, tables out.

    from tapeline.testing import Trial, drawn

    def test_a_late_trade_corrects_its_own_window(tmp_path):
        trial = Trial(pipeline, tmp_path)
        trial.feed(raw_trades=drawn('''
            trade_id | side | amount | traded_at
            t1       | BUY  | 300    | 2026-11-13 10:05
        '''))
        assert trial.read("trade_summary")[0]["total_buy"] == 300

A trial is the real core on real Spark and Delta, without intake's folder and Spark's query: each
call of `feed` is one tape batch and one micro-batch of the flow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tapeline.books import Books, Layout
from tapeline.declare import Pipeline
from tapeline.plan import resolve
from tapeline.run.flow import Flow, Published
from tapeline.run.intake.lines import Lines
from tapeline.run.intake.pieces import DeliveryPart, Part, write_piece
from tapeline.run.session import build_session
from tapeline.run.sinks import Outbox
from tapeline.run.steps import Steps
from tapeline.run.tape import Tape
from tapeline.settings import Settings

Record = Mapping[str, Any] | str | bytes


def drawn(text: str) -> list[dict[str, str]]:
    """A table drawn as text, columns apart by '|'; empty cells are left out of a record."""
    lines = [line.split("#")[0].rstrip() for line in text.strip().splitlines()]
    header, *rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.strip()]
    return [
        {name: cell for name, cell in zip(header, row, strict=True) if cell != ""} for row in rows
    ]


def spark() -> SparkSession:
    """The session that trials share."""
    return build_session(Settings(), "tapeline-testing")


class Trial:
    """A pipeline driven batch by batch."""

    def __init__(
        self,
        pipeline: Pipeline,
        root: Path,
        project: Path | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        like: Trial | None = None,
    ) -> None:
        """`like` is an earlier trial of the same pipeline and references: its steps are reused."""
        self.settings = Settings(project=project or root, root=root / "books")
        self.plan = resolve(pipeline)
        self.clock = clock
        home = self.settings.home(pipeline.name)
        self._accepted = Layout(home)
        self.tapes = {name: Tape(self._accepted, name, clock) for name in pipeline.sources}
        steps: Steps | None = like.flow.steps if like else None
        self.flow: Flow = Flow(spark(), self.plan, self.settings, self.tapes, clock, steps)
        self.books = Books(self.plan, home)
        self._next_piece = {name: tape.last_piece + 1 for name, tape in self.tapes.items()}

    def feed(self, header: str | None = None, **batches: Iterable[Record]) -> list[Published]:
        """Put records on the tapes of their sources, one batch each, and let the flow advance."""
        for source, records in batches.items():
            self.put(source, records, header)
        return self.flow.advance()

    def put(self, source: str, records: Iterable[Record], header: str | None = None) -> None:
        """Put records on the tape and leave it at that."""
        number = self._next_piece[source]
        self._next_piece[source] += 1
        lines = [_encoded(record) for record in records]
        path = self._accepted.intake(source) / "accepted" / f"{number:012}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_piece(path, number, self.clock(), [_part(number, lines, header)])
        batch = self.tapes[source].commit([path])
        if batch is not None:
            self.flow.offer(source, batch)

    def read(self, name: str) -> list[dict[str, Any]]:
        """A table, summary or view as a reader sees it."""
        rows: list[dict[str, Any]] = self.arrow(name).to_pylist()
        return rows

    def arrow(self, name: str) -> pa.Table:
        return self.books.read(name)

    def verdicts(self, table: str) -> dict[str, int]:
        """How many records of a table have which verdict."""
        return dict(self.books.totals().get(table, {}).get("verdicts", {}))

    def quarantine(self, table: str) -> list[dict[str, Any]]:
        """The quarantined records of a table with their reasons."""
        rows = self.books.register(table).to_pylist()
        return [row for row in rows if row["_verdict"] == "quarantined"]

    def sent(self, sink: str) -> list[dict[str, Any]]:
        """What a sink sends of all batches so far, in order; nothing is delivered."""
        outbox = Outbox(self.plan, self._accepted, self.plan.pipeline.sinks[sink])
        return outbox.all_rows(self.flow.published_batch)

    def close(self) -> None:
        self.flow.close()


def _part(number: int, lines: list[bytes], header: str | None) -> Part:
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    numbers = np.arange(1, len(lines) + 1, dtype=np.int64)
    facts = DeliveryPart(
        number, "a test's records", None, int(lengths.sum()), len(lines), 1, len(lines), True
    )
    whole = Lines(b"".join(lines), lengths, numbers, {})
    return Part(facts, (whole,), header.encode() if header else None)


def _encoded(record: Record) -> bytes:
    if isinstance(record, bytes):
        return record
    if isinstance(record, str):
        return record.encode()
    return json.dumps(record).encode()
