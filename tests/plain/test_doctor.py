"""The doctor finds what is broken, and says how to fix it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tapeline.books import Commits, TableWriter
from tapeline.books.commit import Commit, TapePosition
from tapeline.books.layout import Layout
from tapeline.operate.doctor import Finding, examine
from tapeline.operate.doctor.places import _Sources
from tapeline.settings import Settings
from tapeline.testing import Deployment, plan_of
from tapeline.trades.markets import IN, named
from tapeline.trades.own_days import extend_calendar, read_own_days
from tapeline.trades.reference import write_reference

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
SCHEMA = pa.schema([("_batch", pa.int64()), ("word", pa.string())])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "landing").mkdir()
    write_reference(tmp_path / "reference", years=(2026, 2027))
    return Settings(project=tmp_path, root=tmp_path / "books")


def examined(settings: Settings, now: datetime = NOW) -> dict[str, Finding]:
    plan = plan_of("tapeline.trades", settings)
    books = Deployment(plan, settings).books
    return {finding.what: finding for finding in examine(books, settings, now)}


def test_a_new_project_is_ok(settings: Settings) -> None:
    found = examined(settings)
    found.pop("class archive")  # whether there is one is a fact of this machine
    assert {what: one.state for what, one in found.items() if one.state != "ok"} == {}
    assert {"Java", "jars", "books", "source raw_trades", "disk", "clock"} <= found.keys()
    assert found["reference settlement_calendar"].words == "ends on 2027-12-31"


def test_a_calendar_that_runs_out_is_told_in_time(settings: Settings) -> None:
    soon = examined(settings, datetime(2027, 12, 20, tzinfo=UTC))
    assert soon["reference market_days"].state == "warning"
    late = examined(settings, datetime(2028, 1, 20, tzinfo=UTC))
    assert late["reference market_days"].state == "error"
    assert "reference clients" not in late  # days on which clients came are no calendar


def test_the_calendar_of_the_venue_that_ends_first_counts(settings: Settings) -> None:
    path = settings.project / "reference" / "settlement_calendar.csv"
    write_reference(settings.project / "other", years=(2026, 2027), markets=named("US,IN"))
    path.write_bytes((settings.project / "other" / "settlement_calendar.csv").read_bytes())
    found = examined(settings)["reference settlement_calendar"]
    # Bombay's sessions are listed until then
    assert found.words == "venue XBOM ends on 2026-12-30"
    soon = examined(settings, datetime(2026, 12, 2, tzinfo=UTC))["reference settlement_calendar"]
    assert soon.state == "warning"
    assert "reference/settlement_calendar.csv" in soon.remedy
    assert "When a calendar runs out" in soon.remedy
    late = examined(settings, datetime(2027, 1, 20, tzinfo=UTC))
    assert late["reference settlement_calendar"].state == "error"
    days = settings.project / "days.csv"
    days.write_text("day,what\n2027-01-26,no session\n")
    extend_calendar(path, IN, read_own_days(days))
    mended = examined(settings, datetime(2027, 1, 20, tzinfo=UTC))["reference settlement_calendar"]
    assert (mended.state, mended.words) == ("ok", "venue XBOM ends on 2027-12-30")


def test_a_missing_reference_is_named(settings: Settings) -> None:
    (settings.project / "reference" / "clients.csv").unlink()
    assert "clients.csv" in examined(settings)["references"].words


def test_damage_to_a_table_is_named(settings: Settings) -> None:
    folder = settings.home("trades") / "silver" / "trades"
    book = TableWriter(folder, SCHEMA, "t")
    book.append(pa.table({"_batch": [1], "word": ["a"]}, SCHEMA), 1, "batch-000000000001")
    assert examined(settings)["tables"].state == "ok"
    (file,) = folder.glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert "bytes, not" in examined(settings)["table silver/trades"].words
    file.unlink()
    assert "is missing" in examined(settings)["table silver/trades"].words
    max((folder / "_delta_log").glob("*.json")).write_bytes(b"")
    assert "COMMIT_EMPTY" in examined(settings)["table silver/trades"].words


def test_a_clock_that_went_back_and_an_open_batch_are_told(settings: Settings) -> None:
    commits = Commits(settings.home("trades") / "commits")
    commit = Commit(positions={"raw_trades": TapePosition(last=3)})
    decision = commits.decide(commit, NOW)
    commits.publish(decision, NOW + timedelta(hours=1))
    commits.decide(commit, NOW)
    found = examined(settings)
    assert found["clock"].state == "error"
    assert "batch 2 is decided" in found["positions"].words
    assert found["tape raw_trades"].state == "error"  # the flow is ahead of its tape


def test_a_source_of_one_s_own_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    class Queue:
        path = "queue orders"

    found = _Sources("raw", Settings(), Layout(tmp_path)).from_own(Queue())
    assert (found.state, found.words.split(":")[0]) == ("ok", "queue orders")
