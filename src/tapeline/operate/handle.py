"""A pipeline that runs in this process, by the names of Spark's StreamingQuery."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapeline.books import Books
from tapeline.books.extract import extract
from tapeline.declare import Pipeline
from tapeline.declare.duration import parse_duration, parse_moment
from tapeline.operate.runner import Runner
from tapeline.plan import resolve
from tapeline.settings import Settings, load_settings

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PAUSE_SECONDS = 0.05
Moment = datetime | str | None


def start(
    pipeline: Pipeline,
    spark: SparkSession | None,
    project: str | Path,
    root: str | Path | None,
    every: str | None,
) -> Handle:
    """Run a pipeline on a thread of its own; returns once its steps are prepared."""
    settings = load_settings(Path(project).absolute())
    if root is not None:
        settings = replace(settings, root=Path(root))
    interval = parse_duration(every) if every else None
    return Handle(pipeline, settings, spark, interval)


class Handle:
    """A running pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        session: SparkSession | None = None,
        every: timedelta | None = None,
    ) -> None:
        plan = resolve(pipeline)
        self._settings = settings
        self._every = every
        self._runner = Runner(plan, settings, session=session)
        self._session = session or self._runner.session
        self._error: BaseException | None = None
        self.books = Books(plan, settings.home(plan.name))
        self._thread = threading.Thread(target=self._run, name=plan.name, daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # a script that ends lets the batch at work end first

    def _run(self) -> None:
        try:
            with self._runner as runner:
                runner.run(self._every)
        except BaseException as error:  # noqa: BLE001 - who waits for the end is told
            self._error = error

    @property
    def id(self) -> str:
        """The same for all runs of these books."""
        return self._runner.query.id

    @property
    def runId(self) -> str:  # noqa: N802 - Spark's own names, here and below
        """Of this run."""
        return self._runner.query.run_id

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._runner.plan.name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it runs."""
        return self._thread.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        """What it does now: `message`, `isDataAvailable` and `isTriggerActive`."""
        busy = self.isActive and self._runner.taking.flow_works
        message = "Processing new data" if busy else "Waiting for data to arrive"
        failure = self.exception()
        if failure is not None:
            message = str(failure)
        return {
            "message": message if self.isActive or failure else "Stopped",
            "isDataAvailable": bool(self._runner.flow.waiting),
            "isTriggerActive": busy,
        }

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """The last 100 batches of this run, each as Spark describes a batch of its own."""
        return list(self._runner.query.recent)

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """The last batch of this run; None before the first."""
        recent = self.recentProgress
        return recent[-1] if recent else None

    def exception(self) -> BaseException | None:
        """What ended the run, or keeps it from going on; None if nothing does."""
        return self._error or self._runner.failure

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until everything that is there now is published. For tests and notebooks.

        A file that never becomes complete is waited for twice as long as a file may take to settle.
        """
        taking = self._runner.taking
        # One look at the sources may be under way now; the next one sees all that is there.
        first = taking.rounds + 3
        looked: int | None = None
        patience = 2 * self._settings.intake.settle_seconds
        quiet_since = time.monotonic()
        while self.isActive and self.exception() is None:
            if taking.waiting and time.monotonic() - quiet_since < patience:
                looked = None
            elif looked is None:
                # What was taken is on its tape when the next look begins.
                looked = max(first, taking.rounds + 1)
            elif taking.rounds >= looked and not self._busy:
                return
            if self._busy:
                quiet_since = time.monotonic()
            time.sleep(PAUSE_SECONDS)
        self._raise()

    @property
    def _busy(self) -> bool:
        return self._runner.on_the_way or self._runner.taking.flow_works

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for the end, or for this many seconds; then whether it has ended."""
        self._thread.join(timeout)
        if not self.isActive:
            self._raise()
        return None if timeout is None else not self.isActive

    def stop(self) -> None:
        """Stop after the current batch, and wait for it."""
        self._runner.stop()
        self._thread.join()
        atexit.unregister(self.stop)

    def _raise(self) -> None:
        failure = self.exception()
        if failure is not None:
            raise failure

    def arrow(self, name: str, as_reported: Moment = None) -> pa.Table:
        """A table, summary, view or reference, now or as reported at a time."""
        moment = parse_moment(as_reported) if isinstance(as_reported, str) else as_reported
        return extract(self.books, name, self.books.cut(moment))

    def pandas(self, name: str, as_reported: Moment = None) -> pd.DataFrame:
        """The same for pandas; decimals stay exact."""
        return self.arrow(name, as_reported).to_pandas()

    def dataframe(self, name: str, as_reported: Moment = None) -> DataFrame:
        """The same for Spark; the rows pass through this process."""
        return self._session.createDataFrame(self.arrow(name, as_reported))

    def __repr__(self) -> str:
        facts: Mapping[str, Any] = self.status
        return f"Handle({self.name!r}, {facts['message']})"
