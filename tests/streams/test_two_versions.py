"""Books made under one version of PySpark open under another, and go back again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tapeline
from tapeline.settings import Settings
from tapeline.testing import Deployment
from tests.support.counted_words import drop

OTHER = ["pyspark==4.1.1", "py4j==0.10.9.9"]
JARS = Path(__file__).parents[2] / ".jars"
FILE = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tapeline import Files, Pipeline, Stream, expect_or_quarantine

pipeline = Pipeline("words")
WORD = "id int, at timestamp, word string, tags array<string>"
pipeline.source("raw", Files("landing/", schema=WORD))


@pipeline.table(key="id", time="at")
@expect_or_quarantine("has a word", "length(trim(word)) > 0")
def words(raw: Stream) -> DataFrame:
    kind = F.when(F.length("word") > 3, "long").otherwise(F.lit("short"))
    return raw.withColumns({"kind": kind, "day": F.to_date("at"), "first": F.element_at("tags", 1)})


@pipeline.summary(key=["w", "kind"])
def counts(words: Stream) -> DataFrame:
    return words.groupBy(F.window("at", "15 minutes").alias("w"), "kind").agg(
        F.count("*").alias("n"), F.sum(F.length("word")).alias("letters")
    )
"""


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with another PySpark, and everything else from this one."""
    folder = tmp_path_factory.mktemp("other") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    target = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, *OTHER],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode:
        pytest.skip(f"{OTHER[0]} cannot be installed here: {installed.stderr[-200:]}")
    # Searched after the folder itself; what an editable install adds is named apart.
    ours = Path(tapeline.__file__).parents[1]
    (target / "rest.pth").write_text(f"{ours}\n{sysconfig.get_paths()['purelib']}\n")
    return folder / "bin" / "python"


def run(python: Path | str, project: Path, **more: str) -> str:
    """`tapeline run --once`; the version of PySpark that ran it."""
    environment = {**os.environ, "TAPELINE_JARS": str(JARS), **more}
    words = [str(python), "-m", "tapeline", "run", "pipeline.py", "--once", "--json"]
    done = subprocess.run(
        words, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    asked = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_books_of_one_version_of_spark_go_on_under_another(
    tmp_path: Path, other_python: Path
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "pipeline.py").write_text(FILE)
    books = Deployment("pipeline.py", Settings(project=tmp_path)).books
    # Prepared plans are of one version; by public API the books go on under any.
    turns = [(sys.executable, "true"), (other_python, "false"), (sys.executable, "true")]
    versions, prints = [], []
    for number, (python, prepared) in enumerate(turns):
        texts = ["tea", "coffee", " "]
        rows = [
            {"id": 10 * number + n, "at": "2026-11-13T10:05:00Z", "word": word, "tags": ["a"]}
            for n, word in enumerate(texts)
        ]
        drop(tmp_path, f"{number}.json", *rows)
        versions.append(run(python, tmp_path, TAPELINE_FLOW_PREPARED=prepared))
        prints.append(json.dumps(books.cut().commit.fingerprints))
        found = {r["kind"]: (r["n"], r["letters"]) for r in books.read("counts").to_pylist()}
        assert found == {
            "short": (number + 1, 3 * (number + 1)),
            "long": (number + 1, 6 * (number + 1)),
        }
    assert versions == ["4.2.0", "4.1.1", "4.2.0"]
    assert len(set(prints)) == 1
    assert books.totals()["words"].verdicts == {"kept": 6, "quarantined": 3}
