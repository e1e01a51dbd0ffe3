"""A desk for intake tests: a sender on one side, a tape on the other, clocks in between."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from tapeline.books.pieces import PIECE_SCHEMA, describe
from tapeline.books.schemas import FILE
from tapeline.intake.files import FileRules, Intake, IntakeLimits

# The sender's and the tape's own: a test that breaks the disk breaks it for intake alone.
rename, unlink, utime = os.rename, os.unlink, os.utime
LONG_AGO_NS = 1_000_000_000_000_000_000
NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)


class Desk:
    """Sends files, runs an intake, and keeps what it published, as the tape would."""

    def __init__(self, root: Path, form: FileRules | None = None, **limits: float) -> None:
        self.root, self.drop, self.home = root, root / "drop", root / "home"
        self.drop.mkdir(exist_ok=True)
        self.form = form or FileRules("json")
        self.limits = IntakeLimits(**limits)
        self.seconds = 0.0
        self.tape: list[dict] = []
        self.facts: list = []
        self.intake: Intake | None = None

    def start(self) -> Intake:
        if self.intake:
            self.intake.close()
        self.intake = Intake(
            self.drop, self.home, self.form, self.limits, lambda: NOON, lambda: self.seconds
        )
        self.intake.recover(*self.on_tape())
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

    def ingest(self) -> None:
        """Put the pieces that are to be seen on the tape, and remove them, as ingest does."""
        for path in sorted((self.home / "accepted").iterdir()):
            facts = describe(path)
            table = pq.read_table(path)
            wide = table.schema.names[len(PIECE_SCHEMA) :]
            assert wide in ([], FILE.names)
            assert table.select(PIECE_SCHEMA.names).schema.equals(PIECE_SCHEMA)
            if facts.piece > self.on_tape()[0]:
                assert facts.piece == self.on_tape()[0] + 1
                assert table["at"].to_pylist() == list(range(facts.records))
                assert set(table["part"].to_pylist()) <= {facts.piece}
                self.tape += table.to_pylist()
                self.facts.append(facts)
            unlink(path)

    def on_tape(self) -> tuple[int, int]:
        parts = [part.delivery for facts in self.facts for part in facts.deliveries]
        return len(self.facts), max(parts, default=0)

    def run(self) -> list[bytes]:
        """Take, ingest and settle once; all lines on the tape so far."""
        self.take()
        self.ingest()
        self.intake.settle(self.on_tape()[0])
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
