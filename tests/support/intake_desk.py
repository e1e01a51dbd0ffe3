"""A desk for intake tests: a sender on one side, a real tape on the other, clocks in between."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from tapeline.books.layout import Layout
from tapeline.books.pieces import PIECE_SCHEMA, PieceFacts, describe
from tapeline.books.schemas import FILE
from tapeline.books.tape import Tape
from tapeline.intake.files import FileIntake, FileRules, IntakeLimits

# The sender's own: a test that breaks the disk breaks it for intake alone.
rename, utime = os.rename, os.utime
LONG_AGO_NS = 1_000_000_000_000_000_000
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)


class Desk:
    """Sends files, runs an intake on a real tape, and reads what is on that."""

    def __init__(self, root: Path, form: FileRules | None = None, **limits: float) -> None:
        self.root, self.drop = root, root / "drop"
        self.layout = Layout(root / "books")
        self.home = self.layout.intake("raw")
        self.drop.mkdir(exist_ok=True)
        self.form = form or FileRules("json")
        self.limits = IntakeLimits(**limits)
        self.seconds = 0.0
        self.writer: Tape | None = None
        self.intake: FileIntake | None = None

    def start(self) -> FileIntake:
        if self.intake:
            self.intake.close()
        self.writer = Tape(self.layout, "raw", lambda: NOON)
        self.intake = FileIntake(
            self.drop, self.writer, self.form, self.limits, lambda: NOON, lambda: self.seconds
        )
        self.intake.recover()
        return self.intake

    def send(self, name: str | bytes, content: bytes) -> Path:
        """Deliver by the contract: write elsewhere, then rename into the drop folder."""
        hidden = self.root / "outbox"
        hidden.write_bytes(content)
        # As from another day: so that a test does not depend on how the kernel's clock ticks.
        utime(hidden, ns=(LONG_AGO_NS, LONG_AGO_NS))
        target = Path(os.fsdecode(os.path.join(os.fsencode(self.drop), os.fsencode(name))))
        target.parent.mkdir(parents=True, exist_ok=True)
        rename(hidden, target)
        return target

    def take(self) -> int:
        if not self.intake:
            self.start()
        return self.intake.take()

    @property
    def facts(self) -> list[PieceFacts]:
        """What the pieces on the tape say of themselves, in order."""
        assert self.writer is not None
        numbers = [number for batch in self.writer.since(0) for number in batch.pieces]
        assert numbers == list(range(1, len(numbers) + 1))
        return [describe(self.layout.tape("raw") / f"{number:012}.parquet") for number in numbers]

    @property
    def tape(self) -> list[dict]:
        """Every record on the tape, in order."""
        rows: list[dict] = []
        for facts in self.facts:
            table = pq.read_table(self.layout.tape("raw") / f"{facts.piece:012}.parquet")
            assert table.schema.names[len(PIECE_SCHEMA) :] in ([], FILE.names)
            assert table.select(PIECE_SCHEMA.names).schema.equals(PIECE_SCHEMA)
            assert table["at"].to_pylist() == list(range(facts.records))
            assert set(table["part"].to_pylist()) <= {facts.piece}
            rows += table.to_pylist()
        return rows

    def pieces(self) -> list[Path]:
        """The files of the tape."""
        return sorted(self.layout.tape("raw").glob("*.parquet"))

    def run(self) -> list[bytes]:
        """Take once and put away; all lines on the tape so far."""
        self.take()
        self.intake.settle()
        return self.lines()

    def lines(self) -> list[bytes]:
        return [record["raw"] for record in self.tape]

    def findings(self, kind: str | None = None) -> list[dict]:
        path = self.home / "findings.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [row for row in rows if kind in (None, row["kind"])]

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.findings()]

    def kept(self, folder: str) -> dict[int, bytes]:
        """The originals in taken/, archive/ or rejected/, by number."""
        paths = (self.home / folder).rglob("*")
        return {
            int(path.name): path.read_bytes()
            for path in paths
            if path.is_file() and path.name.isdigit()
        }
