"""Two pytest processes share one run: they take test modules from the two ends of one line.

`scripts/tests.py` starts both with this plugin. Each collects all tests and puts the modules into
the same order; a module belongs to the process that first makes a file of its name in the folder of
claims. They meet somewhere in the middle, wherever that is on this machine, so nothing has to be
known about how long a test takes. Modules that need the same broker, browser or session are
neighbours: most of these start in one of the two processes only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

CLAIMS, END = "TESTS_CLAIMS", "TESTS_END"  # the folder, and "first" or "last"
STOP = "stop"
# The folders at the first end, then the rest, and at the last end what does without Spark: that
# process needs no JVM until it reaches the tests of topics.
FOLDERS = ("browser", "server", "golden", "streams", "steps")
# A module of ten minutes and one test: it would keep one process busy when the other has ended.
FIRST_OF_THE_LAST = "test_newcomer.py"
SERVERS = {"broker", "cluster", "own", "postgres", "second_broker", "topic"}


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the modules that this process gets, as pytest's own loop would."""
    if CLAIMS not in os.environ or session.config.option.collectonly:
        return None
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        return None  # pytest's own loop says so
    claims = Path(os.environ[CLAIMS])
    items = _claimed(_line(session.items), claims, os.environ[END] == "last")
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail or session.shouldstop:
            (claims / STOP).touch()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        if (claims / STOP).exists():
            raise session.Interrupted("the other process stopped")
        item = following
    return True


def _line(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests by module, in the order that both processes use."""
    modules = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    return sorted(modules, key=_place)


def _place(module: list[pytest.Item]) -> tuple[int, str]:
    needs = {name for item in module for name in getattr(item, "fixturenames", ())}
    folder = module[0].path.parent.name
    if module[0].path.name == FIRST_OF_THE_LAST:
        place = len(FOLDERS) + 3
    elif not any(item.get_closest_marker("spark") for item in module):
        place = len(FOLDERS) + (1 if needs & SERVERS else 2)
    elif needs & SERVERS:
        place = len(FOLDERS)
    else:
        place = FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS) - 1
    return place, str(module[0].path)


def _claimed(line: list[list[pytest.Item]], claims: Path, from_last: bool) -> Iterator[pytest.Item]:
    for module in reversed(line) if from_last else line:
        if _claim(claims, module[0].path):
            yield from module


def _claim(claims: Path, module: Path) -> bool:
    """Whether the module is ours now: only one process can make the file."""
    name = re.sub(r"\W+", "_", str(module))
    try:
        (claims / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
