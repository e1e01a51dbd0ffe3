"""A user's own format and destination, from a project folder outside the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapeline.plan import load_pipeline
from tapeline.settings import KafkaSettings, Settings, activate
from tapeline.testing import Deployment, Trial, quarantined
from tests.support.doc_pages import REPOSITORY, blocks

EXTEND = REPOSITORY / "docs" / "extend.md"
PIPELINE = """
from logfile import LogFile
from pyspark.sql import DataFrame
from tapeline import Files, Pipeline, Rows, Stream
from xml_format import Xml

ORDER = "id string not null, amount decimal(10,2) not null"
pipeline = Pipeline("own")
pipeline.source("raw", Files("drop/", format=Xml("order"), schema=ORDER))


@pipeline.table(key="id")
def orders(raw: Stream) -> DataFrame:
    return raw


@pipeline.sink(LogFile("orders.log"))
def told(orders: Rows) -> Rows:
    return [{"id": one["id"], "amount": str(one["amount"])} for one in orders]
"""
# Delivers and does nothing else; dies by SIGKILL after its first `sys.argv[1]` writes.
CHILD = """
import os, signal, sys, threading
from pathlib import Path

from tapeline.deliver import SinkWorkers
from tapeline.settings import load_settings
from tapeline.testing import Deployment, plan_of

write, left = os.write, [int(sys.argv[1])]

def dies(handle, data):
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return write(handle, data)

os.write = dies
settings = load_settings(Path.cwd())
plan = plan_of("pipeline.py", settings)
batch = Deployment(plan, settings).books.cut().batch
workers = SinkWorkers(plan, settings, None, lambda: batch)
workers.finish(threading.Event())
"""


MODULES = ("xml_format.py", "mqtt_source.py", "logfile.py")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules as docs/extend.md shows them, and a pipeline that uses them."""
    shown = [block.text for block in blocks(EXTEND) if block.kind == "python"]
    for name, text in zip(MODULES, shown, strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name.removesuffix(".py"), None)
    activate(Settings())


def order(number: int, amount: str) -> str:
    return f"<order><id>o{number}</id><amount>{amount}</amount></order>"


BOMB = """<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>
<orders><order><id>&b;</id><amount>1</amount></order></orders>"""


def test_xml_files_come_into_the_books_and_what_is_broken_is_quarantined(
    project: Path, spark: Any
) -> None:
    settings = Settings(project=project, root=project / "books", kafka=KafkaSettings())
    (project / "drop").mkdir()
    good = [order(n, f"{n}.50") for n in range(300)]
    odd = ["<order><id>x</id><id>y</id><amount>1</amount></order>", order(7_000, "many")]
    whole = "<orders>" + "\n".join([*good, *odd]) + "</orders>"
    (project / "drop" / "good.xml").write_text(whole, encoding="utf-8")
    (project / "drop" / "bomb.xml").write_text(BOMB, encoding="utf-8")
    (project / "drop" / "half.xml").write_text(whole[:-20], encoding="utf-8")
    here = Deployment(load_pipeline("pipeline.py", settings), settings)
    here.run_once()
    assert {row["id"]: str(row["amount"]) for row in here.read("orders")} == {
        f"o{n}": f"{n}.50" for n in range(300)
    }
    reasons = sorted(reason for row in quarantined(here.books) for reason in row["reasons"])
    assert reasons == [
        "amount is not a plain decimal number",
        "the record is not one value per field: 'id' is there twice",
    ]
    said = (here.home / "intake" / "raw" / "findings.jsonl").read_text()
    rejected = {row["name"]: str(row) for row in map(json.loads, said.splitlines())}
    assert "entities" in rejected["bomb.xml"]
    assert "not well-formed" in rejected["half.xml"] or "no element" in rejected["half.xml"]
    assert here.unbalanced() == []
    assert len((project / "orders.log").read_text().splitlines()) > 300


def test_a_log_gets_every_row_once_however_often_its_writer_is_killed(
    project: Path, spark: Any
) -> None:
    settings = Settings(project=project, root=project / "books")
    trial = Trial(load_pipeline("pipeline.py", settings), project)
    for batch in range(4):
        trial.feed(raw=[order(batch * 10 + n, "1.25") for n in range(3)])
    trial.close()
    (project / "tapeline.toml").write_text("root = 'books'\n")
    log = project / "orders.log"
    expected = [f"o{batch * 10 + n}" for batch in range(4) for n in range(3)]
    kills = 0
    for _ in range(20):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, "1" if kills % 2 == 0 else "2"],
            cwd=project, check=False, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
        kills += 1
    assert kills >= 4  # between the rows and their position, and between two batches
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["id"] for one in lines if "id" in one] == expected
    assert [one["batch"] for one in lines if "batch" in one] == [1, 2, 3, 4]
