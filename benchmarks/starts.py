"""What a start costs: Tapeline today and before it had a class archive, beside a bare session."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.generate import REPOSITORY, make
from benchmarks.scenarios import Facts, fresh_root, ratio
from tapeline.java import wanted_folder

# The last commit without the archive, and with commands that load more than they need.
BEFORE = "e1739f0"
PR_SET_CHILD_SUBREAPER = 36
RECORDS = 200
WITHOUT_SPARK = {"help": ["--help"], "plan": ["plan"], "status": ["status"]}
SHOP = {**WITHOUT_SPARK, "report": ["report", "totals"]}


def starts(scale: float, rounds: int) -> Facts:
    """What do a start of Spark and commands without Spark cost, before and after the archive?"""
    # A JVM outlives the Python that started it: it becomes our child, and its seconds are counted.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with fresh_root("starts") as root:
        old = root / "before"
        _run(["git", "worktree", "add", "--quiet", "--detach", str(old), BEFORE], REPOSITORY)
        try:
            return _compared(root, {"before": old, "after": REPOSITORY}, rounds)
        finally:
            _run(["git", "worktree", "remove", "--force", str(old)], REPOSITORY)


def _compared(root: Path, versions: dict[str, Path], rounds: int) -> Facts:
    projects = {"new_project": _shop(root), "trades": _trades(root)}
    found: dict[str, list[tuple[float, float]]] = {}

    def note(name: str, words: Sequence[str], where: Path, source: Path) -> None:
        found.setdefault(name, []).append(_cost(words, where, source))

    for _ in range(rounds):
        note("bare_session", ["-m", "benchmarks.bare_session"], REPOSITORY, REPOSITORY)
        for version, source in versions.items():
            for name, project in projects.items():
                _fresh(project)
                pipeline = ["tapeline.trades"] if name == "trades" else []
                note(
                    f"{name}.{version}",
                    ["-m", "tapeline", "run", *pipeline, "--once"],
                    project,
                    source,
                )
            shop = projects["new_project"]
            note(f"plan_check.{version}", ["-m", "tapeline", "plan", "--check"], shop, source)
            for name, words in SHOP.items():
                note(f"{name}.{version}", ["-m", "tapeline", *words], shop, source)
    return _facts(found)


def _facts(found: dict[str, list[tuple[float, float]]]) -> Facts:
    cpu = {name: [one[0] for one in runs] for name, runs in found.items()}
    shown: dict[str, Any] = {"unit": "processor seconds of all processes; wall seconds beside them"}
    for name in ("new_project", "trades", "plan_check", *SHOP):
        after, before = cpu[f"{name}.after"], cpu[f"{name}.before"]
        shown[f"{name}_of_before"] = ratio(after, before)
        shown[f"{name}_seconds"] = round(median(after), 2)
    shown["new_project_of_bare"] = ratio(cpu["new_project.after"], cpu["bare_session"])
    shown["new_project_of_bare_before"] = ratio(cpu["new_project.before"], cpu["bare_session"])
    wall = {name: [one[1] for one in runs] for name, runs in found.items()}
    shown["new_project_of_bare_wall"] = ratio(wall["new_project.after"], wall["bare_session"])
    return {**shown, "cpu_seconds": cpu, "wall_seconds": wall}


def _cost(words: Sequence[str], where: Path, source: Path) -> tuple[float, float]:
    """Processor and wall seconds of `python <words>`, of all processes that it started."""
    paths = os.pathsep.join([str(source / "src"), str(REPOSITORY)])
    more = {"PYTHONPATH": paths, "TAPELINE_JARS": str(wanted_folder())}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    _run([sys.executable, *words], where, more)
    wall = time.monotonic() - started
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(cpu, 2), round(wall, 2)


def _shop(root: Path) -> Path:
    _run([sys.executable, "-m", "tapeline", "new", "shop"], root)
    (root / "shop" / "landing").rename(root / "shop" / "files")
    return root / "shop"


def _trades(root: Path) -> Path:
    """The brokerage with a file of 200 trades."""
    made = make("stream", 0.5)
    project = root / "brokerage"
    (project / "files").mkdir(parents=True)
    lines = made.files[0].read_bytes().splitlines(keepends=True)
    (project / "files" / "trades.jsonl").write_bytes(b"".join(lines[:RECORDS]))
    shutil.copytree(made.reference, project / "reference")
    return project


def _fresh(project: Path) -> None:
    """No books, and all files to be read."""
    for name in ("landing", "tapeline-data"):
        shutil.rmtree(project / name, ignore_errors=True)
    shutil.copytree(project / "files", project / "landing")


def _run(words: Sequence[str], where: Path, more: dict[str, str] | None = None) -> None:
    environment = {**os.environ, **(more or {})}
    subprocess.run(words, cwd=where, env=environment, check=True, capture_output=True)
