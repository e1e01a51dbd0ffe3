"""`make test` in two processes: every test runs once, and what fails in one of them is not lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MODULE = """
import pathlib

def test_{name}():
    with pathlib.Path("ran").open("a") as ran:
        ran.write("{name}\\n")
    assert {passes}

def test_{name}_too():
    with pathlib.Path("ran").open("a") as ran:
        ran.write("{name} too\\n")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    for folder in ("browser", "plain"):
        (tmp_path / folder).mkdir()
        for number in range(4):
            name = f"{folder}_{number}"
            text = MODULE.format(name=name, passes=name != "plain_2")
            (tmp_path / folder / f"test_{name}.py").write_text(text)
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / "tests.py"), *words],
        cwd=project, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_each_test_runs_in_one_of_the_two_and_a_failure_in_either_counts(project: Path) -> None:
    done = run(project)
    names = [f"{folder}_{number}" for folder in ("browser", "plain") for number in range(4)]
    expected = sorted([*names, *(f"{name} too" for name in names)])
    assert sorted((project / "ran").read_text().splitlines()) == expected, done.stdout
    assert done.returncode == 1
    assert "FAILED plain/test_plain_2.py::test_plain_2" in done.stdout
    assert re.search(r"Two processes: .*failed \(1\)", done.stdout)
    assert sum(map(int, re.findall(r"(\d+) passed", done.stdout))) == 15


def test_a_selection_that_one_process_gets_nothing_of_passes(project: Path) -> None:
    done = run(project, "-k", "browser_1")
    assert done.returncode == 0, done.stdout
    assert "Two processes: passed and passed." in done.stdout
    assert sorted((project / "ran").read_text().split("\n")) == ["", "browser_1", "browser_1 too"]


def test_nothing_selected_is_a_failure_as_with_pytest_alone(project: Path) -> None:
    assert run(project, "-k", "nonesuch").returncode == 5


def test_options_that_need_the_terminal_run_in_one_process(project: Path) -> None:
    done = run(project, "--lf", "-k", "browser")
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout
    assert "Two processes" not in done.stdout
