"""A drill from its first delivery to its last comparison."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tapeline.books import Books
from tapeline.books.status import read_status
from tapeline.failpoints import POINTS
from tapeline.operate.drill.compare import differences
from tapeline.operate.drill.feed import deliver, drop_folder, make_feed, take_project
from tapeline.operate.drill.options import DrillOptions, DrillReport
from tapeline.operate.drill.victim import Victim, run_once
from tapeline.plan import load_pipeline, resolve
from tapeline.settings import Settings
from tapeline.words import counted

Say = Callable[[str], None]
Files = Sequence[tuple[str, bytes]]
POINT_SECONDS = 20.0


class Drill:
    """One drill in a folder of its own."""

    def __init__(self, asked: DrillOptions, say: Say) -> None:
        self._asked = asked
        self._say = say
        self._chance = Random(asked.seed)
        self._target = asked.target_in(asked.project)
        self._done = DrillReport(asked.seed)

    def run(self) -> DrillReport:
        started = time.monotonic()
        shutil.rmtree(self._asked.folder, ignore_errors=True)
        take_project(self._asked)
        project = self._asked.project
        settings = Settings(project=project, root=project / "books")
        plan = resolve(load_pipeline(self._target, settings))
        drop = drop_folder(plan, project)
        feed = make_feed(self._asked, self._chance)
        self._done.records = feed.records
        self._say(
            f"{counted(feed.records, 'record')} in {counted(len(feed.files), 'file')}, "
            f"seed {self._asked.seed}"
        )
        self._kill_again_and_again(feed.files, drop, settings.home(plan.name))
        run_once(self._target, project)
        books = Books(plan, settings.home(plan.name))
        self._done.differences = differences(books, self._asked)
        self._done.seconds = time.monotonic() - started
        return self._done

    def _kill_again_and_again(self, files: Files, drop: Path, home: Path) -> None:
        kills, waiting = self._kills(), list(files)
        for number, at in enumerate(kills, start=1):
            share = -(-len(waiting) // (len(kills) - number + 2))
            now, waiting = waiting[:share], waiting[share:]
            kill = self._cycle(at, now, drop, home)
            self._done.kills.append(kill)
            self._say(f"kill {number} of {len(kills)}: {json.dumps(kill)}")
        _deliver_all(drop, waiting)

    def _kills(self) -> list[str]:
        """Where it shall die: at each named point, or at as many as half of the kills allow."""
        points = list(POINTS)
        if self._asked.kills < 2 * len(points):
            points = self._chance.sample(points, (self._asked.kills + 1) // 2)
        kills = points + ["a random moment"] * (self._asked.kills - len(points))
        self._chance.shuffle(kills)
        return kills

    def _cycle(self, at: str, files: Files, drop: Path, home: Path) -> dict[str, Any]:
        """Start the pipeline, deliver, and let it die."""
        environment = {}
        if at in POINTS:
            environment["TAPELINE_FAILPOINTS"] = f"{at}={self._chance.randint(1, 3)}"
        half = len(files) // 2
        _deliver_all(drop, files[:half])
        killed = "itself"
        log = self._asked.folder / "drill.log"
        with Victim(self._target, self._asked.project, log, environment) as victim:
            victim.wait_until_it_runs(home)
            _deliver_all(drop, files[half:])
            if at in POINTS:
                # With nothing left to do the point may not be reached: then it dies like others.
                victim.wait_until_gone(POINT_SECONDS)
            else:
                time.sleep(self._chance.uniform(0.0, 3.0))
            if not victim.gone:
                killed = self._chance.choice(["both", "both", "python", "jvm"])
                victim.kill(killed)
        return {"at": at, "killed": killed, "batch": _batch(home)}


def _deliver_all(drop: Path, files: Files) -> None:
    for name, content in files:
        deliver(drop, name, content)


def _batch(home: Path) -> int | None:
    status = read_status(home / "status.json")
    return status.batch if status else None
