"""A pipeline with a real drop folder, intake, tape and books, and steps in plain Python."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tapeline import Pipeline
from tapeline.intake.deliveries import Deliveries
from tapeline.intake.opening import Opening
from tapeline.testing import Trial
from tests.support import law_orders
from tests.support.plain_compute import plain_compiler

NOON = datetime(2026, 11, 13, 12, 0, tzinfo=UTC)


def lines(*numbers: int) -> bytes:
    """Records of the laws, by their numbers."""
    return b"".join(json.dumps(law_orders.record(n)).encode() + b"\n" for n in numbers)


class FileDesk:
    """Sends files, takes them, books them; each step when a test says so."""

    records_per_piece = 50_000
    bytes_per_tape_batch = 2 * 1024 * 1024

    def __init__(self, root: Path, pipeline: Pipeline | None = None) -> None:
        self.root, self.drop = root, root / "landing"
        self.now = datetime.now(UTC)
        self.pipeline = pipeline or law_orders.pipeline()
        self._compiled = plain_compiler(self.pipeline, law_orders.TWINS)
        self._open = ExitStack()
        self.start()

    def start(self) -> None:
        """A process that finds what is on disk, and nothing else."""
        self._open.close()
        self.trial = Trial(
            self.pipeline, self.root, clock=lambda: self.now, compile_steps=self._compiled
        )
        self._open.callback(self.trial.close)
        trial = self.trial
        for tape in trial.tapes.values():
            tape.on_append = lambda batch: trial.flow.offer("raw", batch)
        settings = replace(
            trial.settings,
            intake=replace(trial.settings.intake, records_per_piece=self.records_per_piece),
            flow=replace(trial.settings.flow, bytes_per_tape_batch=self.bytes_per_tape_batch),
        )
        no_queries: Any = None  # files need none
        opening = Opening(trial.plan, settings, trial.flow, trial.clock, no_queries)
        self.intake = opening.open("raw")
        self._open.callback(self.intake.close)

    def send(self, name: str, content: bytes) -> None:
        """Deliver by the contract: write under a hidden name, then rename."""
        target = self.drop / name
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}")
        hidden.write_bytes(content)
        os.utime(hidden, ns=(10**18, 10**18))
        hidden.rename(target)

    def take(self) -> None:
        self.now += timedelta(seconds=1)
        self.intake.take()

    def book(self) -> None:
        self.now += timedelta(seconds=1)
        self.trial.advance()

    def deliver(self, name: str, content: bytes) -> None:
        self.send(name, content)
        self.take()
        self.book()

    @property
    def deliveries(self) -> Deliveries:
        return Deliveries(self.trial.books, self.root)

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> FileDesk:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def states(found: Iterable[Any]) -> list[tuple[str, str]]:
    return [(one.name, one.state) for one in found]
