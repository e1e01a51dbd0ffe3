"""What a pipeline's steps say, without Spark: edits that `tapeline plan` notices, and others."""

from __future__ import annotations

import importlib
import linecache
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tapeline.plan import load_pipeline, resolve
from tapeline.plan.changes import Known, compare
from tapeline.plan.description import describe
from tapeline.settings import Settings

PIPELINE = '''
from pyspark.sql import DataFrame, functions as F
from tapeline import Files, Pipeline, Stream, expect
import rules

pipeline = Pipeline("shop")
pipeline.source("raw", Files("landing/", schema="id string, item string, amount decimal(12,2)"))
RATE = 2

def fee(amount):
    return amount * RATE

@pipeline.table(key="id")
@expect("amount is positive", "amount > 0")
def sales(raw: Stream) -> DataFrame:
    """One row per sale."""
    return raw.withColumn("fee", fee(F.col("amount")) + rules.least())

@pipeline.summary(key="item")
def totals(sales: Stream) -> DataFrame:
    return sales.groupBy("item").agg(F.sum("amount").alias("amount"))

pipeline.summary("fees", sql="select item, sum(fee) as fee from sales group by item", key="item")
'''
RULES = "LEAST = 1\n\ndef least():\n    return LEAST\n"


@pytest.fixture(autouse=True)
def _modules_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))


def described(folder: Path, text: str = PIPELINE, rules: str = RULES) -> tuple[Any, Any]:
    sys.modules.pop("rules", None)
    (folder / "pipeline.py").write_text(textwrap.dedent(text))
    (folder / "rules.py").write_text(rules)
    importlib.invalidate_caches()
    linecache.checkcache()
    plan = resolve(load_pipeline("pipeline.py", Settings(project=folder)))
    return plan, describe(plan)


def noticed(folder: Path, text: str = PIPELINE, rules: str = RULES) -> dict[str, Any]:
    _, before = described(folder)
    plan, _ = described(folder, text, rules)
    found = compare(plan, Known(before, before))
    return {one.name: (one.change, list(one.why)) for one in found}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("One row per sale.", "Every sale, once."),
        ("RATE = 2\n", "RATE = 2  # for everybody\n"),
        ('@pipeline.summary(key="item")', '# by item\n@pipeline.summary(key="item")'),
        ("import rules\n", "import rules\n\n\n"),
        (
            'pipeline.source("raw"',
            'pipeline.view("v", "select * from totals")\npipeline.source("raw"',
        ),
    ],
    ids=["docstring", "comment", "comment above", "empty lines", "view"],
)
def test_an_edit_without_meaning_is_no_change(tmp_path: Path, old: str, new: str) -> None:
    assert old in PIPELINE
    assert noticed(tmp_path, PIPELINE.replace(old, new)) == {}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("amount > 0", "amount > 5", "expectations: + amount is positive, amount > 5, keep"),
        ("RATE = 2", "RATE = 3", "RATE: 2 -> 3"),
        ("return amount * RATE", "return amount * RATE * 2", "+     return amount * RATE * 2"),
        ('table(key="id")', 'table(key=["id", "item"])', "key: + item"),
        ("amount decimal(12,2)", "amount decimal(14,2)", "decimal(14,2)"),
    ],
    ids=["rule", "constant", "helper", "option", "schema"],
)
def test_an_edit_is_named_with_what_it_edits(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    found = noticed(tmp_path, PIPELINE.replace(old, new))
    change, why = found["sales"]
    assert change == "perhaps changed"
    assert any(words in one for one in why), why
    assert found["totals"] == ("perhaps changed", ["reads sales"])


def test_an_edit_in_a_module_of_the_project_counts(tmp_path: Path) -> None:
    found = noticed(tmp_path, rules=RULES.replace("LEAST = 1", "LEAST = 70"))
    assert found["sales"] == ("perhaps changed", ["LEAST: 1 -> 70"])


def test_a_select_that_is_edited_and_steps_that_come_and_go(tmp_path: Path) -> None:
    text = PIPELINE.replace("sum(fee) as fee", "sum(fee) * 2 as fee").replace(
        "def totals", "def money"
    )
    found = noticed(tmp_path, text)
    assert {name: change for name, (change, _) in found.items()} == {
        "fees": "perhaps changed",
        "money": "added",
        "totals": "retired",
    }
