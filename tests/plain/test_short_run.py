"""A run of a handful of records is told from a backlog before Java starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapeline import Files, Own, Pipeline, Source
from tapeline.books import Layout
from tapeline.books.status import Status, write_status
from tapeline.operate.short_run import FEW_BYTES, is_short
from tapeline.plan import Plan, resolve
from tapeline.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "landing" / "today").mkdir(parents=True)
    return Settings(project=tmp_path, root=tmp_path / "books")


def plan_of(**connectors: object) -> Plan:
    pipeline = Pipeline("orders")
    for name, connector in connectors.items():
        pipeline.source(name, connector)
    return resolve(pipeline)


FROM_FILES = {"raw": Files("landing/", format="json", schema="id string")}


def test_a_few_small_files_are_little_work(settings: Settings) -> None:
    plan = plan_of(**FROM_FILES)
    landing = settings.project / "landing"
    assert is_short(plan, settings)
    (landing / "today" / "a.jsonl").write_bytes(b"x" * (FEW_BYTES // 2))
    assert is_short(plan, settings)
    (landing / "b.jsonl").write_bytes(b"x" * FEW_BYTES)
    assert not is_short(plan, settings)


def test_what_is_left_on_the_tape_counts(settings: Settings) -> None:
    plan = plan_of(**FROM_FILES)
    layout = Layout(settings.home(plan.name))
    layout.tape("raw").mkdir(parents=True)
    assert not is_short(plan, settings)  # nobody says how much
    for status, short in (
        (Status(running=False), True),
        (Status(running=False, lag_records=1), False),
        (Status(running=True, pid=1), False),  # it was killed, or it runs
    ):
        write_status(layout.status, status)
        assert is_short(plan, settings) is short


def test_of_other_sources_nobody_knows(settings: Settings) -> None:
    class Queue(Source):
        path = "a queue"

    queue = Own(Queue(), format="json", schema="id string")
    assert not is_short(plan_of(queue=queue, **FROM_FILES), settings)
