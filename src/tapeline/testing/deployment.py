"""A pipeline run as `tapeline run` does it, in the process of a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tapeline.books import Books
from tapeline.books.status import Status
from tapeline.declare import Pipeline
from tapeline.plan import Plan, load_pipeline, resolve
from tapeline.settings import Settings
from tapeline.testing.answers import status_of, unbalanced
from tapeline.testing.trial import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tapeline.books.audit import Check
    from tapeline.flow.progress import Published
    from tapeline.operate.runner import Runner


def plan_of(pipeline: Pipeline | Plan | str, settings: Settings | None = None) -> Plan:
    """A pipeline, checked; a text is the file or module to load, as on the command line."""
    if isinstance(pipeline, str):
        pipeline = load_pipeline(pipeline, settings or Settings())
    return pipeline if isinstance(pipeline, Plan) else resolve(pipeline)


class Deployment:
    """A pipeline with its settings: drop folders, topics and sinks are the real ones."""

    def __init__(self, pipeline: Pipeline | Plan | str, settings: Settings) -> None:
        self.plan = plan_of(pipeline, settings)
        self.settings = settings
        self.home = settings.home(self.plan.name)
        self.books = Books(self.plan, self.home)

    def __repr__(self) -> str:
        return f"Deployment({self.plan!r}, {self.settings!r})"

    def runner(self, session: SparkSession | None = None) -> Runner:
        """What runs the pipeline, as a context manager; it holds the lock until its end."""
        from tapeline.operate.runner import Runner

        return Runner(self.plan, self.settings, session=session or spark())

    def run_once(self, session: SparkSession | None = None) -> list[Published]:
        """Take and book what is there, as `tapeline run --once`."""
        with self.runner(session) as runner:
            return runner.run_once()

    @contextmanager
    def running(
        self, every: timedelta | None = None, session: SparkSession | None = None
    ) -> Iterator[Runner]:
        """Run on a thread of its own until the block ends, as `tapeline run`."""
        with self.runner(session) as runner:
            thread = threading.Thread(target=runner.run, args=(every,))
            thread.start()
            try:
                yield runner
            finally:
                runner.stop()
                thread.join()

    def status(self) -> Status:
        """What the run says of itself; nothing but defaults before the first."""
        return status_of(self.books)

    def read(self, name: str) -> list[dict[str, Any]]:
        """A table, summary or view as a reader sees it."""
        rows: list[dict[str, Any]] = self.books.read(name).to_pylist()
        return rows

    def unbalanced(self, full: bool = True) -> list[Check]:
        """The checks of a full audit that fail."""
        return unbalanced(self.books, full)
