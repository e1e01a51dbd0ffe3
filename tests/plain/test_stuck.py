"""A flow that cannot advance is seen everywhere, since the first time, until it advances."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tapeline.books import Books
from tapeline.books.status import IncidentStatus, Status, read_status
from tapeline.books.status_file import StatusFile
from tapeline.books.stuck import Stuck, after_batch, failed_again, words_of_stuck
from tapeline.cli import app
from tapeline.operate.doctor import Finding
from tapeline.operate.doctor.work import work
from tapeline.plan import load_pipeline, resolve
from tapeline.serve.feed import Feed
from tapeline.serve.metrics import metrics_of
from tapeline.settings import Settings

NOW = datetime(2026, 11, 13, 10, tzinfo=UTC)
TAPES = {"raw_trades": (12, 15)}


def flow_at(batch: int) -> Any:
    return SimpleNamespace(
        plan=SimpleNamespace(name="trades"),
        tapes={},
        published_batch=batch,
        published_at=None,
        acts_waiting=0,
        backlog=SimpleNamespace(largest=0, position={}),
        room=SimpleNamespace(records=1),
    )


def stuck_at_7() -> Stuck:
    first = failed_again(None, 7, TAPES, "no", NOW)
    return failed_again(first, 7, TAPES, "No space left", NOW + timedelta(minutes=3))


def test_it_counts_from_the_first_failure_of_the_same_batch() -> None:
    stuck = stuck_at_7()
    assert (stuck.since, stuck.attempts) == (NOW.isoformat(), 2)
    assert words_of_stuck(stuck) == (
        "has not advanced since 2026-11-13 10:00 UTC: batch 7 (raw_trades tape batches 12 to 15) "
        "failed 2 times, last error: No space left"
    )
    later = failed_again(stuck, 8, {"raw_trades": (16, 16)}, "other", NOW + timedelta(hours=1))
    assert "batch 8 (raw_trades tape batch 16) failed once" in words_of_stuck(later)
    assert after_batch(stuck, 6) == stuck
    assert after_batch(stuck, 7) is None
    assert "(operator actions)" in words_of_stuck(failed_again(None, 1, {}, "no", NOW))


def test_it_outlives_the_process_and_ends_with_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    status = StatusFile(path, NOW)
    status.stuck = stuck_at_7()
    status.write(flow_at(6), None, False, NOW)
    again = StatusFile(path, NOW)
    again.write(flow_at(6), None, True, NOW)
    assert (read_status(path) or Status()).stuck == stuck_at_7()
    again.write(flow_at(7), None, True, NOW + timedelta(seconds=1))
    assert (read_status(path) or Status()).stuck is None


def findings(books: Books) -> dict[str, Finding]:
    return {one.what: one for one in work(books)}


@pytest.fixture
def books(tmp_path: Path) -> Books:
    settings = Settings(project=tmp_path, root=tmp_path / "books")
    plan = resolve(load_pipeline("tapeline.trades", settings))
    found = Books(plan, settings.home("trades"))
    found.layout.home.mkdir(parents=True)
    return found


def say(books: Books, stuck: Stuck | None, **more: Any) -> None:
    status = StatusFile(books.layout.status, NOW)
    status.stuck = stuck
    status.incidents = more.get("incidents", [])
    status.write(flow_at(6), None, more.get("running", False), NOW)


def test_doctor_status_and_metrics_say_so(books: Books, tmp_path: Path) -> None:
    say(books, stuck_at_7())
    found = findings(books)["flow"]
    assert found.state == "error"
    assert found.words.startswith("has not advanced since 2026-11-13 10:00 UTC: batch 7")
    assert "start the pipeline again" in found.remedy
    where = ["tapeline.trades", "--project", str(tmp_path)]
    where += ["--root", str(tmp_path / "books")]
    said = CliRunner().invoke(app, ["status", *where]).output
    assert "The flow has not advanced since 2026-11-13 10:00 UTC: batch 7" in " ".join(said.split())
    facts = json.loads(CliRunner().invoke(app, ["status", *where, "--json"]).output)
    assert Stuck(**facts["stuck"]) == stuck_at_7()
    assert CliRunner().invoke(app, ["doctor", *where]).exit_code == 3
    text = bytes(metrics_of(books, Feed(books, 1)).body).decode()
    assert "tapeline_stuck 1.0" in text
    assert "tapeline_stuck_attempts 2.0" in text
    (since,) = re.findall(r"^tapeline_stuck_since_timestamp_seconds (\S+)$", text, re.MULTILINE)
    assert float(since) == NOW.timestamp()


def test_a_flow_that_advances_is_ok_again(books: Books) -> None:
    say(books, None)
    assert findings(books)["flow"].state == "ok"
    text = bytes(metrics_of(books, Feed(books, 1)).body).decode()
    assert "tapeline_stuck 0.0" in text


@pytest.mark.parametrize(
    ("given_up", "words"), [(False, "retried automatically"), (True, "restart the pipeline")]
)
def test_the_remedy_says_whether_somebody_must_start_it(
    books: Books, given_up: bool, words: str
) -> None:
    incident = IncidentStatus(part="the flow", attempts=2, given_up=given_up)
    say(books, stuck_at_7(), running=True, incidents=[incident])
    assert words in findings(books)["flow"].remedy
