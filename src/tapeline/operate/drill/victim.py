"""The process that is killed: a pipeline in a process group of its own, Python and JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tapeline.books.status import read_status
from tapeline.errors import OperationError

START_SECONDS = 120.0
COMMAND = [sys.executable, "-m", "tapeline"]
SETTLE = {"TAPELINE_INTAKE_SETTLE_SECONDS": "0.2"}
# Small batches: many decisions, many places to die at.
SMALL = SETTLE | {
    "TAPELINE_FLOW_RECORDS_PER_BATCH": "2000",
    "TAPELINE_FLOW_BYTES_PER_TAPE_BATCH": "200000",
    "TAPELINE_INTAKE_RECORDS_PER_PIECE": "1000",
    "TAPELINE_HOUSEKEEPING_COMPACT_EVERY_BATCHES": "7",
    "TAPELINE_HOUSEKEEPING_BALANCES_EVERY_BATCHES": "5",
}


class Victim:
    """A running pipeline. Nothing of it lives on when it is left: neither Python nor its JVM."""

    def __init__(self, target: str, project: Path, log: Path, environment: dict[str, str]) -> None:
        with log.open("ab") as writing:
            self._child = subprocess.Popen(
                [*COMMAND, "run", target, *_places(project)],
                env={**os.environ, **SMALL, **environment},
                stdout=writing,
                stderr=writing,
                start_new_session=True,
            )

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    @property
    def gone(self) -> bool:
        return self._child.poll() is not None

    def wait_until_it_runs(self, home: Path) -> None:
        _wait(lambda: self.gone or self._runs(home), START_SECONDS)

    def wait_until_gone(self, seconds: float) -> None:
        _wait(lambda: self.gone, seconds)

    def kill(self, part: str) -> None:
        """Kill its Python, its JVM or both; of one, the other must notice."""
        if part == "jvm":
            for pid in _java_below(self._child.pid):
                os.kill(pid, signal.SIGKILL)
            self.wait_until_gone(60.0)
        elif part == "python":
            os.kill(self._child.pid, signal.SIGKILL)
            self._child.wait()
        else:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def _runs(self, home: Path) -> bool:
        status = read_status(home / "status.json")
        return bool(status and status.pid == self._child.pid)


def run_once(target: str, project: Path) -> None:
    """Process everything waiting, without kills."""
    done = subprocess.run(
        [*COMMAND, "run", target, "--once", *_places(project)],
        env={**os.environ, **SETTLE},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise OperationError(f"the last run failed: {done.stderr[-2000:]}")


def _places(project: Path) -> list[str]:
    return ["--project", str(project), "--root", str(project / "books")]


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _java_below(pid: int) -> list[int]:
    """The JVMs that a process has started."""
    found = []
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    for one in map(int, below):
        try:
            name = Path(f"/proc/{one}/comm").read_text().strip()
        except OSError:
            continue
        found += [one] if name == "java" else _java_below(one)
    return found
