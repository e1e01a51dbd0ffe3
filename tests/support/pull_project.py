"""A project whose pipeline pulls from a back office, in this process or in one that is killed."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tapeline.books.pulls import PullStatus
from tapeline.operate.puller import Puller
from tapeline.settings import SuperviseSettings, load_settings
from tapeline.testing import plan_of

PIPELINE = """
from tapeline import Files, HttpPull, Pipeline

pipeline = Pipeline("office")
pipeline.source("raw_trades", Files("landing/", schema="trade_id string"))
pipeline.pull("back_office", HttpPull("/trades", records_per_page=7), into="raw_trades")
"""
IMPATIENT = SuperviseSettings(max_wait_seconds=0.01)
# A process of its own costs seconds of imports; a fork of one that has done them costs a blink.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tapeline.operate.puller", "tapeline.plan", "httpx"])


class Project:
    """A project whose pipeline pulls from a back office."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.drop = folder / "landing"
        self.home = folder / "tapeline-data" / "office"
        self.taken: list[tuple[str, bytes]] = []
        self.said: list[str] = []
        if not (folder / "pipeline.py").exists():
            (folder / "pipeline.py").write_text(PIPELINE)
        (folder / "tapeline.toml").write_text(
            f"[pull.back_office]\naddress = '{address}'\ntimeout_seconds = 0.5\n"
            "[log]\nformat = 'json'\n"
        )

    def collector(
        self,
        every: timedelta = timedelta(seconds=1),
        monotonic: Callable[[], float] = time.monotonic,
        supervise: SuperviseSettings = IMPATIENT,
        variables: dict[str, str] | None = None,
        **pulling: object,
    ) -> Puller:
        settings = load_settings(self.folder, variables or {})
        said = replace(settings.pull["back_office"], **pulling)
        pulls = {**settings.pull, "back_office": said}
        settings = replace(settings, pull=pulls, supervise=supervise)
        plan = plan_of("pipeline.py", settings)
        return Puller(plan, settings, every, self.said.append, monotonic)

    def pull(self, **pulling: object) -> list[PullStatus]:
        with self.collector(**pulling) as collector:  # type: ignore[arg-type]
            collector.run(once=True)
            if collector.failure:
                raise collector.failure
            return collector.status()

    def process(self, address: str, failpoints: str = "") -> ForkServerProcess:
        """A process that pulls once; it is not started yet."""
        return FORKS.Process(target=_pull, args=(self.folder, address, failpoints))

    def take(self) -> None:
        """What intake does: whole files leave the folder, in order of name."""
        for path in sorted(self.drop.glob("[!.]*")):
            self.taken.append((path.name, path.read_bytes()))
            path.unlink()

    def delivered(self) -> list[bytes]:
        self.take()
        return self.records_taken()

    def records_taken(self) -> list[bytes]:
        return [record for _, content in self.taken for record in content.splitlines()]


def _pull(folder: Path, address: str, failpoints: str) -> None:
    os.environ["TAPELINE_FAILPOINTS"] = failpoints
    Project(folder, address).pull()
