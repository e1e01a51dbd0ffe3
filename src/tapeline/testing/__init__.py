"""Helpers for tests of pipelines: tables written as text, batches in, tables out.

    from tapeline.testing import Trial, table

    def test_a_late_trade_corrects_its_own_window(tmp_path):
        trial = Trial(pipeline, tmp_path)
        trial.feed(raw_trades=table('''
            trade_id | side | amount | traded_at
            t1       | BUY  | 300    | 2026-11-13 10:05
        '''))
        assert trial.read("trade_summary")[0]["total_buy"] == 300

A `Trial` is the real core on real Spark and Delta, without intake's folder and Spark's query: each
call of `feed` is one tape batch and one micro-batch of the flow. A `Deployment` runs the same
pipeline as `tapeline run` does, with its drop folders, topics and sinks. The functions below them
ask the books of either. Importing this module starts nothing and does not load PySpark.

Tapeline's own tests use these names too, so that modules inside the package may move.
"""

from tapeline.books import Books
from tapeline.plan import Plan
from tapeline.testing.answers import (
    changes,
    commits_of,
    quarantined,
    status_of,
    unbalanced,
    why,
)
from tapeline.testing.crashes import CRASH_POINTS, PULL_CRASH_POINTS, Crash, crash_at
from tapeline.testing.deployment import Deployment, plan_of
from tapeline.testing.tables import drawn, table
from tapeline.testing.trial import Trial, spark

__all__ = [
    "CRASH_POINTS",
    "PULL_CRASH_POINTS",
    "Books",
    "Crash",
    "Deployment",
    "Plan",
    "Trial",
    "changes",
    "commits_of",
    "crash_at",
    "drawn",
    "plan_of",
    "quarantined",
    "spark",
    "status_of",
    "table",
    "unbalanced",
    "why",
]
