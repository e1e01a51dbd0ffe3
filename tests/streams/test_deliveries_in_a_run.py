"""Deliveries and alerts of a running pipeline: rejected, retried, missing; the time of ticks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tapeline.books.alerts import read_alerts
from tapeline.books.deliveries import DeliveryFilter
from tapeline.books.quarantine import Actor
from tapeline.books.status import read_status
from tapeline.intake.deliveries import Deliveries
from tapeline.testing import Deployment
from tests.support.counted_words import counted, counts, drop, settings_for
from tests.support.waiting import wait_for


def test_a_run_reports_a_rejected_file_and_takes_it_when_it_is_retried(
    tmp_path: Path, spark: Any
) -> None:
    settings, plan = settings_for(tmp_path), counted()
    sources = plan.pipeline.sources
    sources["raw"] = replace(sources["raw"], expect_every="3 seconds")
    deployment = Deployment(plan, settings)
    books = deployment.books
    known = Deliveries(books, tmp_path)
    told: list[tuple[str, str]] = []

    def active() -> set[str]:
        return {one.alert for one in read_alerts(books.layout.alerts).active}

    with deployment.running(timedelta(seconds=1)) as runner:
        runner.on_alert = lambda event, alert: told.append((event, alert.alert))
        drop(tmp_path, "good", {"word": "a"})
        wait_for(lambda: counts(books) == {"a": 1})
        (tmp_path / "landing" / "bad").write_bytes('{"word": "b"}\n'.encode("utf-16"))
        wait_for(lambda: {"delivery-rejected", "delivery-missing"} <= active())
        (one,) = known.undecided()
        Path(one.kept_as or "").write_text('{"word": "b"}\n')
        known.retry("bad", Actor(datetime.now(UTC), "eva"))
        wait_for(lambda: counts(books) == {"a": 1, "b": 1})
        wait_for(lambda: "delivery-rejected" not in active())
        wait_for(lambda: ("closed", "delivery-missing") in told)
        status = read_status(books.layout.status)
        assert status is not None
        assert status.tick is not None
        assert status.tick.interval_seconds == 1.0
        assert status.tick.recent
    assert told.count(("raised", "delivery-rejected")) == 1
    assert told.count(("closed", "delivery-rejected")) == 1
    states = [(d.name, d.state) for d in known.page(DeliveryFilter(), 10).deliveries]
    assert states == [("bad", "booked"), ("bad", "retried"), ("good", "booked")]
    log = (books.layout.log / "run.log").read_text()
    assert "alert_raised alert=delivery-rejected" in log
