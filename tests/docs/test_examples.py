"""Every example in the documentation runs."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tapeline.books.references import rows_by_name
from tapeline.cli import app
from tapeline.settings import Settings, activate
from tapeline.spark.compile import prepare
from tapeline.testing import Plan, plan_of
from tests.support.doc_pages import (
    PAGES,
    README,
    REFERENCE,
    START,
    TUTORIAL,
    blocks,
    files,
    name_of,
    pipelines,
    python,
)

PYTHON = [(sheet, name) for sheet in PAGES for name in python(sheet)]
# Whole pipelines: a block that leaves out its imports or its source shows one part of a file.
PIPELINES = [
    (sheet, name)
    for sheet in PAGES
    for name, text in pipelines(sheet).items()
    if "import " in text and ".source(" in text and "summary(" in text
]
SET_UP_WORDS = {"cd", "git", "make", "mkdir", "source"}


@pytest.fixture
def resolved(tmp_path: Path) -> Iterator[Callable[[str, str], Plan]]:
    """Load a pipeline from text, as the command line does."""

    def load(name: str, text: str) -> Plan:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return plan_of(name, Settings(project=tmp_path))

    yield load
    activate(Settings())


@pytest.mark.parametrize(("sheet", "name"), PYTHON)
def test_every_python_block_compiles(sheet: Path, name: str) -> None:
    compile(python(sheet)[name], f"{name_of(sheet)}:{name}", "exec")


def test_the_pages_that_teach_have_a_pipeline() -> None:
    assert {sheet for sheet, _ in PIPELINES} >= {README, START, TUTORIAL, REFERENCE}


@pytest.mark.parametrize(("sheet", "name"), PIPELINES)
def test_every_pipeline_can_be_resolved(
    sheet: Path, name: str, resolved: Callable[[str, str], Plan]
) -> None:
    plan = resolved(name, pipelines(sheet)[name])
    assert plan.tables
    assert plan.summaries


@pytest.mark.parametrize("sheet", [START, TUTORIAL])
def test_a_page_shows_the_plan_of_its_pipeline(
    sheet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newcomer's run is long: a line that moved is found here, without Spark."""
    command = "tapeline plan pipeline.py"
    (tmp_path / "pipeline.py").write_text(files(sheet, up_to=command)["pipeline.py"])
    block = next(b for b in blocks(sheet) if f"$ {command}\n" in b.text)
    shown = block.text.split(f"$ {command}\n", 1)[1].split("\n$ ", 1)[0].splitlines()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["plan", "pipeline.py"])
    printed = {line.strip() for line in done.output.splitlines()}
    assert [x for x in shown if x.strip() not in printed | {"..."}] == [], done.output


def test_the_example_of_errors_runs() -> None:
    text = next(text for text in python(REFERENCE).values() if "error.exit_code" in text)
    exec(compile(text, "reference.md", "exec"), {})


@pytest.fixture
def import_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Import modules that lie in tmp_path, and forget them afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize(
    ("sheet", "module"),
    [(START, "test_pipeline"), (TUTORIAL, "test_pipeline"), (REFERENCE, "test_rides")],
)
def test_the_examples_of_tests_pass(
    sheet: Path,
    module: str,
    spark: SparkSession,
    tmp_path: Path,
    import_there: Callable[[str], Any],
) -> None:
    for name, text in files(sheet).items():
        if name.endswith(".py"):
            (tmp_path / name).write_text(text, encoding="utf-8")
    tests = {n: v for n, v in vars(import_there(module)).items() if n.startswith("test_")}
    assert tests
    for name, test in tests.items():
        (tmp_path / name).mkdir()
        if test.__code__.co_argcount:
            test(tmp_path / name)
        else:
            test()


def test_spark_agrees_with_the_pipeline_of_the_front_page(
    spark: SparkSession, resolved: Callable[[str, str], Plan], tmp_path: Path
) -> None:
    ((name, text),) = pipelines(README).items()
    plan = resolved(name, text)
    steps = prepare(spark, plan, rows_by_name(plan, tmp_path))
    assert steps.fingerprints.keys() == {"sales", "takings"}


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_the_ten_minutes_work_as_they_are_told(tmp_path: Path) -> None:
    """Every block of start.md in order: files are written, commands run, outputs compared."""
    (tmp_path / "drop").mkdir()
    for block in blocks(START):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        if block.kind != "console":
            continue
        for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, *expected = shown.rstrip("\n").split("\n")
            words = shlex.split(command)
            if words[0] == "mv":
                shutil.move(tmp_path / words[1], tmp_path / words[2])
            elif words[0] == "tapeline":
                out = run([sys.executable, "-m", "tapeline", *words[1:]], tmp_path)
                printed = {line.strip() for line in out.splitlines()}
                assert [x for x in expected if x != "..." and x.strip() not in printed] == [], out
            else:  # set-up is done, and the sheet's own test runs in this process, above
                assert words[0] in SET_UP_WORDS or "pytest" in words, command
    words = ["report", "sales", "--verdict", "quarantined", "--pipeline", "pipeline.py", "--json"]
    out = run([sys.executable, "-m", "tapeline", *words], tmp_path)
    assert "cups and price are above zero" in out
