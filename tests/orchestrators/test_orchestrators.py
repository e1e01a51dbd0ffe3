"""The examples for cron, Airflow and Dagster, run by what they are written for."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import PIPELINE, tapeline

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples" / "orchestrators"
COMMAND = Path(sys.executable).with_name("tapeline")
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@dataclass(frozen=True)
class Ended:
    """How a run ended: success, skipped or failed; what it was told, and all it said."""

    state: str
    facts: dict[str, int]
    text: str


def python_of(name: str) -> Path:
    """The interpreter of an orchestrator's own environment."""
    found = REPOSITORY / ".venv-orchestrators" / name / "bin" / "python"
    if not found.exists():
        reason = f"{name} is not installed: run 'make orchestrators'"
        if os.environ.get("REQUIRE_ORCHESTRATORS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def environment(shop: Path, *folders: Path) -> dict[str, str]:
    """What an orchestrator's service would have: no shell's variables, and where things are."""
    java = shutil.which("java")
    assert java is not None
    return {
        "HOME": str(shop),
        "PATH": os.pathsep.join([*map(str, folders), str(Path(java).parent), "/usr/bin", "/bin"]),
        "BOOKS_TAPELINE": str(COMMAND),
        "BOOKS_PROJECT": str(shop),
        **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
    }


def cron(shop: Path) -> Ended:
    """As cron does it: the line of a crontab, by sh, with next to no environment."""
    line = f"'{EXAMPLES / 'books.sh'}' '{shop}' pipeline.py"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd="/",
        env=environment(shop),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    note = (shop / "run.log").read_text().splitlines()[-1].split(maxsplit=1)[1]
    if done.returncode:
        return Ended("failed", {}, done.stdout)
    assert (done.stdout, done.stderr) == ("", "")  # nothing is mailed
    if "another process" in note:
        return Ended("skipped", {}, note)
    numbers = [int(word) for word in note.replace(";", "").split() if word.isdigit()]
    return Ended("success", dict(zip(("records", "batches", "batch"), numbers, strict=True)), note)


AIRFLOW = """
import json
from airflow_books import books
run = books.test()
(done,) = run.get_task_instances()
facts = done.xcom_pull(task_ids="advance") if done.state == "success" else {}
print("\\n" + json.dumps([done.state, facts]))
"""


def airflow(shop: Path) -> Ended:
    """A DAG run in Airflow's own process, with a database of its own."""
    python = python_of("airflow")
    settings = {
        "AIRFLOW_HOME": str(shop / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(EXAMPLES),
    }
    if not (shop / "airflow").exists():
        _run([python, "-m", "airflow", "db", "migrate"], shop, settings)
        _run([python, "-m", "airflow", "dags", "reserialize"], shop, settings)
    text = _run([python, "-c", AIRFLOW], shop, settings)
    state, facts = json.loads(text.splitlines()[-1])
    return Ended(state, facts, text)


DAGSTER = """
import json
from dagster_books import definitions
done = definitions.resolve_job_def("keep_the_books").execute_in_process(raise_on_error=False)
made = done.asset_materializations_for_node("books")
facts = {name: value.value for one in made for name, value in one.metadata.items()}
state = "failed" if not done.success else "success" if made else "skipped"
print("\\n" + json.dumps([state, facts]))
"""


def dagster(shop: Path) -> Ended:
    python = python_of("dagster")
    (shop / "dagster").mkdir(exist_ok=True)
    settings = {
        "DAGSTER_HOME": str(shop / "dagster"),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONPATH": str(EXAMPLES),
    }
    text = _run([python, "-c", DAGSTER], shop, settings)
    state, facts = json.loads(text.splitlines()[-1])
    return Ended(state, facts, text)


def _run(words: list[object], shop: Path, settings: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=shop,
        env={**environment(shop, Path(str(words[0])).parent), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(params=[cron, airflow, dagster], ids=lambda one: one.__name__)
def orchestrator(request: pytest.FixtureRequest) -> Callable[[Path], Ended]:
    found: Callable[[Path], Ended] = request.param
    if found is not cron:
        python_of(found.__name__)
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "the coffee shop"
    (folder / "inbox").mkdir(parents=True)
    (folder / "pipeline.py").write_text(PIPELINE)
    return folder


def deliver(shop: Path, name: str, *lines: str) -> None:
    hidden = shop / "inbox" / f".{name}"
    hidden.write_text("\n".join(["id,shop,money", *lines]) + "\n")
    hidden.rename(shop / "inbox" / name)


@contextmanager
def another_process(shop: Path) -> Iterator[None]:
    """Somebody else holds the books, as a run that is still at work does."""
    lock = shop / "tapeline-data" / "sales" / ".lock"
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_an_orchestrator_runs_the_pipeline_and_understands_how_it_ended(
    shop: Path, orchestrator: Callable[[Path], Ended]
) -> None:
    deliver(shop, "monday.csv", "1,north,10.50", "2,south,4.00", "3,north,-1")
    first = orchestrator(shop)
    assert first.state == "success", first.text
    assert first.facts.items() >= {"records": 3, "batches": 1, "batch": 1}.items()
    report = tapeline(shop, "report", "by_shop", "--pipeline", "pipeline.py", "--json")
    assert [row["money"] for row in json.loads(report.stdout)] == ["10.50", "4.00"]

    with another_process(shop):
        meanwhile = orchestrator(shop)
    assert meanwhile.state == "skipped", meanwhile.text

    nothing = orchestrator(shop)
    assert nothing.facts.items() >= {"records": 0, "batches": 0, "batch": 1}.items(), nothing.text

    (shop / "pipeline.py").write_text(PIPELINE.replace("by_shop(sales:", "by_shop(sale:"))
    broken = orchestrator(shop)
    assert broken.state == "failed", broken.text
    assert "exit code 2" in broken.text
    assert "Did you mean 'sales'?" in broken.text
