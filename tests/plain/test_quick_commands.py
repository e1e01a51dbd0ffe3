"""Commands that need no Spark load little: what a process imports decides how quickly it answers.

Times depend on the machine, so what is loaded is compared, not the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import tapeline

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "books" / "sales.tar.gz"
# Ends with the names of what was loaded, whatever the command printed before.
RUN = """
import json, sys
sys.argv = ["tapeline", *json.loads(sys.argv[1])]
from tapeline.cli import main
from tapeline.cli.pandas_aside import this_process_is_ours
try:
    this_process_is_ours()
    main()
except SystemExit as ended:
    code = ended.code
    print()
    print(json.dumps({"code": code or 0, "modules": sorted(sys.modules)}))
"""
LIBRARIES = {"pyarrow", "duckdb", "deltalake", "numpy", "pandas", "pyspark", "fastapi"}
CONNECTORS = {"fastavro", "simplefix", "httpx", "psycopg", "confluent_kafka", "exchange_calendars"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "sales"


def loaded(words: list[str], folder: Path) -> tuple[str, set[str]]:
    """What a command printed, and the top-level packages that its process imported."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    said, _, last = done.stdout.rstrip("\n").rpartition("\n")
    facts = json.loads(last)
    assert facts["code"] == 0, done.stderr
    return said, {name for name in facts["modules"] if "." not in name}


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["run", "--help"], ["quarantine", "list", "--help"]]
)
def test_help_loads_no_library(words: list[str], tmp_path: Path) -> None:
    said, modules = loaded(words, tmp_path)
    assert said
    assert not modules & (LIBRARIES | CONNECTORS)


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        (["plan"], "Pipeline is valid"),
        (["status"], "pipeline sales"),
        (["report", "hours"], "hour"),
        (["audit"], "The books balance"),
        (["quarantine", "list"], ""),
    ],
)
def test_readers_load_neither_pandas_nor_connectors(
    words: list[str], shows: str, project: Path
) -> None:
    said, modules = loaded(words, project)
    assert shows in said
    assert "pyarrow" in modules
    assert not modules & {"pandas", "fastapi", *CONNECTORS}


def test_a_pipeline_that_imports_pandas_keeps_it(project: Path, tmp_path: Path) -> None:
    """PyArrow must find the pandas that a pipeline uses."""
    text = (project / "pipeline.py").read_text()
    file = tmp_path / "pipeline.py"
    head, mark, rest = text.partition("from pyspark.sql import DataFrame")
    assert mark
    asks = "import pandas\nimport pyarrow\nassert len(pyarrow.table({'a': [1]}).to_pandas()) == 1\n"
    file.write_text(f"{head}{asks}{mark}{rest}")
    said, modules = loaded(["report", "hours", "--pipeline", str(file)], project)
    assert "hour" in said
    assert "pandas" in modules


def test_every_public_name_is_found() -> None:
    assert {name for name in tapeline.__all__ if getattr(tapeline, name) is None} == set()
    assert set(tapeline.__all__) <= set(dir(tapeline))
    with pytest.raises(AttributeError, match="no attribute 'Fiels'"):
        _ = tapeline.Fiels
