"""Alerts of the engine: raised once, closed once, across restarts, and told to people."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tapeline.books.alerts import (
    Condition,
    EngineAlert,
    KnownAlerts,
    lagging,
    overrunning,
    reconcile,
    words_of_tick,
)
from tapeline.books.quarantine import Actor
from tapeline.books.status import SourceStatus, Status, Tick
from tapeline.books.status_file import StatusFile
from tapeline.declare import Pipeline
from tapeline.errors import DeclarationError
from tapeline.intake.alerts import engine_alerts
from tapeline.operate.alert_watch import AlertWatch
from tapeline.operate.doctor.work import deliveries as doctor
from tapeline.operate.notify import Notifier, slack
from tapeline.serve.feed import Feed
from tapeline.serve.metrics import metrics_of
from tapeline.settings import NotifySettings
from tests.support import law_orders
from tests.support.file_desk import FileDesk, lines

EVA = Actor(datetime(2026, 11, 18, 9, tzinfo=UTC), "eva")
UTF16 = "{}".encode("utf-16")
NINE = datetime(2026, 11, 18, 9, tzinfo=UTC)


class Watched(FileDesk):
    """A desk with a watch as a run has it; `told` is what people would hear."""

    def start(self) -> None:
        super().start()
        self.told: list[tuple[str, str, str]] = []
        trial = self.trial
        self.status = StatusFile(trial.books.layout.status, self.now)
        self.watch = AlertWatch(
            trial.books, trial.settings, self.status, self.arrivals, self._hear, lambda: self.now
        )

    def arrivals(self) -> dict[str, datetime | None]:
        return {"raw": self.trial.tapes["raw"].last_at}

    def _hear(self, event: str, alert: EngineAlert) -> None:
        self.told.append((event, alert.alert, alert.key))

    def look(self) -> list[tuple[str, str, str]]:
        """What is told by one more look."""
        self.told.clear()
        self.watch.look()
        return list(self.told)


def expecting() -> Pipeline:
    found = law_orders.pipeline()
    found.sources["raw"] = replace(found.sources["raw"], expect_every="15 minutes")
    return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Watched]:
    with Watched(tmp_path, expecting()) as found:
        yield found


def active(desk: Watched) -> list[str]:
    found = engine_alerts(desk.deliveries, desk.now)
    return [one.alert for one in found if one.closed_at is None]


def test_a_rejected_file_raises_one_alert_that_closes_when_it_is_retried(desk: Watched) -> None:
    desk.deliver("a.jsonl", UTF16)
    assert desk.look() == [("raised", "delivery-rejected", "raw:rejected:1")]
    assert desk.look() == []
    desk.start()
    assert desk.look() == [], "a restart does not tell it again"
    assert active(desk) == ["delivery-rejected"]
    Path(desk.deliveries.undecided()[0].kept_as or "").write_bytes(lines(1))
    desk.deliveries.retry("a.jsonl", EVA)
    assert active(desk) == [], "nobody needs a running pipeline to see that"
    assert desk.look() == [("closed", "delivery-rejected", "raw:rejected:1")]
    assert desk.look() == []


def test_a_dismissed_file_and_a_corrected_manifest_close_their_alerts(desk: Watched) -> None:
    (desk.drop / "m.jsonl.manifest").write_text(json.dumps({"rows": 9}))
    desk.send("m.jsonl", lines(1))
    desk.deliver("a.jsonl", UTF16)
    assert {key for _, _, key in desk.look()} == {"raw:rejected:1", "raw/m.jsonl"}
    desk.deliveries.dismiss("a.jsonl", EVA)
    assert desk.look() == [("closed", "delivery-rejected", "raw:rejected:1")]
    (desk.drop / "m.jsonl.manifest").unlink()
    desk.now += timedelta(seconds=5)
    desk.take()
    assert desk.look() == [("closed", "delivery-rejected", "raw/m.jsonl")]


def test_a_missing_delivery_is_told_once_and_closes_when_one_comes(desk: Watched) -> None:
    desk.deliver("a.jsonl", lines(1))
    desk.now += timedelta(minutes=14)
    assert desk.look() == []
    desk.now += timedelta(minutes=2)
    assert desk.look() == [("raised", "delivery-missing", "raw")]
    assert desk.look() == []
    desk.deliver("b.jsonl", lines(2))
    assert desk.look() == [("closed", "delivery-missing", "raw")]


def test_an_empty_file_is_a_delivery_and_a_rejected_one_is_not(desk: Watched) -> None:
    desk.deliver("a.jsonl", lines(1))
    desk.now += timedelta(minutes=10)
    desk.deliver("b.jsonl", b"")
    desk.now += timedelta(minutes=10)
    assert desk.look() == []
    desk.deliver("c.jsonl", UTF16)
    desk.now += timedelta(minutes=10)
    assert [alert for _, alert, _ in desk.look()] == ["delivery-rejected", "delivery-missing"]


def test_a_missing_delivery_is_seen_after_a_restart_since_it_was_due(desk: Watched) -> None:
    desk.deliver("a.jsonl", lines(1))
    due = desk.now + timedelta(minutes=15)
    desk.close()
    desk.now += timedelta(hours=3)  # the process was down
    assert active(desk) == ["delivery-missing"], "without a running pipeline"
    desk.start()
    assert desk.look() == [("raised", "delivery-missing", "raw")]
    (one,) = engine_alerts(desk.deliveries, desk.now)
    assert abs(datetime.fromisoformat(one.raised_at) - due) < timedelta(seconds=5)
    desk.start()
    assert desk.look() == []
    desk.deliver("b.jsonl", lines(2))
    assert desk.look() == [("closed", "delivery-missing", "raw")]


def test_a_file_that_waits_while_nothing_runs_is_not_missing(desk: Watched) -> None:
    desk.deliver("a.jsonl", lines(1))
    desk.send("b.jsonl", lines(2))  # its time on disk is the real one
    desk.close()
    desk.now = datetime.now(UTC) + timedelta(minutes=10)
    assert active(desk) == []


def test_a_source_that_never_delivered_is_missing_after_its_first_interval(desk: Watched) -> None:
    assert desk.look() == []
    desk.now += timedelta(minutes=10)
    desk.start()
    assert desk.look() == []
    desk.now += timedelta(minutes=6)
    assert desk.look() == [("raised", "delivery-missing", "raw")]


def test_a_wrong_interval_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match=r"test_engine_alerts.py:\d+: 'often' is not a dura"):
        Pipeline("p").source("raw", None, expect_every="often")


def test_lag_beyond_the_limit_is_told_and_grows_while_a_batch_runs() -> None:
    lag = SourceStatus(lag_records=5, lag_seconds=50.0)
    status = Status(at=NINE.isoformat(), sources={"raw": lag, "calm": SourceStatus()})
    assert lagging(status, 60, NINE) == []
    (one,) = lagging(status, 60, NINE + timedelta(seconds=11))
    assert (one.alert, one.key) == ("flow-lags", "raw")
    assert lagging(status, 0, NINE + timedelta(hours=1)) == [], "0 is off"
    known, raised = reconcile(KnownAlerts(), [one], NINE)
    assert [alert.closed_at for alert in raised] == [None]
    known, closed = reconcile(known, [], NINE + timedelta(minutes=1))
    assert [alert.key for alert in closed] == ["raw"]
    assert known.active == []


def ticks(*minutes: float) -> Tick:
    """Ticks of a quarter of an hour that took so long."""
    tick = None
    for used in minutes:
        tick = Tick.begun(900.0, tick, NINE).ended(NINE + timedelta(minutes=used))
    assert tick is not None
    return tick


def test_a_tick_says_how_much_of_its_interval_it_uses_and_the_trend() -> None:
    assert words_of_tick(ticks(3), NINE) == "3 minutes of 15 (20%)"
    assert words_of_tick(ticks(10, 12, 15, 17), NINE) == "17 minutes of 15 (113%), rising"
    assert ticks(5, 5.1, 5, 5.2).trend == "steady"
    assert ticks(9, 8, 3, 2).trend == "falling"
    assert len(ticks(*range(1, 60)).recent) == 12
    assert Tick.begun(60.0, ticks(5, 6), NINE).recent == [], "another interval begins afresh"


def test_an_overrun_is_told_while_the_tick_is_at_work_and_closes_with_a_quick_one() -> None:
    at_work = Tick.begun(900.0, ticks(14), NINE)
    assert overrunning(at_work, NINE + timedelta(minutes=14)) == []
    (one,) = overrunning(at_work, NINE + timedelta(minutes=16))
    assert (one.alert, one.what["share"]) == ("tick-overruns", 1.067)
    over = at_work.ended(NINE + timedelta(minutes=17))
    assert overrunning(Tick.begun(900.0, over, NINE), NINE), "until a tick ends in time"
    assert overrunning(Tick.begun(900.0, over, NINE).ended(NINE + timedelta(minutes=5)), NINE) == []
    assert overrunning(None, NINE) == []


def test_closed_alerts_are_forgotten_at_last_and_active_ones_never() -> None:
    some = [EngineAlert(alert="a", key=str(n), raised_at="t", closed_at="t") for n in range(1500)]
    still = Condition("a", "still", "it goes wrong", NINE)
    known, _ = reconcile(KnownAlerts(alerts=some), [still], NINE)
    known, changed = reconcile(known, [still], NINE)
    assert changed == []
    assert [one.key for one in known.active] == ["still"]
    assert [one.key for one in known.alerts] == [*map(str, range(500, 1500)), "still"]


def test_doctor_and_metrics_show_rejected_and_missing_deliveries(desk: Watched) -> None:
    desk.deliver("a.jsonl", lines(1))
    desk.deliver("bad.jsonl", UTF16)
    later = desk.now + timedelta(hours=1)
    found = {one.what: one for one in doctor(desk.trial.books, desk.trial.settings, later)}
    assert found["deliveries"].words.startswith("1 rejected file; the newest is bad.jsonl: it is")
    assert "deliveries retry" in found["deliveries"].remedy
    assert found["delivery-missing"].state == "warning"
    books = desk.trial.books
    text = bytes(metrics_of(books, Feed(books, 1), desk.root).body).decode()
    assert 'tapeline_rejected_files{source="raw"} 1.0' in text
    assert 'tapeline_alerts{alert="delivery-rejected"} 1.0' in text
    assert 'tapeline_delivery_timestamp_seconds{source="raw"}' in text


class Slack:
    """A local server that answers as Slack's webhooks do: 400 for what has no text."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        came = self.came = threading.Event()
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                good = isinstance(said.get("text"), str) and set(said) == {"text"}
                self.send_response(200 if good else 400)
                self.end_headers()
                if good:
                    got.append(said)
                    came.set()

            def log_message(self, *_: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/services/T/B/x"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_slack_gets_one_text_per_message_without_markup() -> None:
    server = Slack()
    settings = NotifySettings(webhook=server.address, webhook_format="slack")
    notifier = Notifier(settings)
    hostile = EngineAlert(alert="delivery-rejected", about="<!channel> & <http://x|y>.csv", key="k")
    facts = {"pipeline": "coffee", "event": "raised", "at": NINE.isoformat()}
    notifier.tell({**facts, **hostile.as_dict()})
    assert server.came.wait(20)
    notifier.close()
    server.close()
    assert server.got == [
        {
            "text": ":warning: coffee: delivery-rejected (raised): "
            "&lt;!channel&gt; &amp; &lt;http://x|y&gt;.csv"
        }
    ]
    assert notifier.problem is None


def test_slack_words_of_an_incident() -> None:
    incident = {"pipeline": "p", "event": "given_up", "part": "the flow", "error": "no room"}
    assert slack(incident)["text"] == ":warning: p: the flow (given up): no room"
    over = slack({**incident, "event": "over"})["text"]
    assert over == ":white_check_mark: p: the flow (over): no room"
