"""Pulling from an HTTP API: every record once, whatever the server, the network or a kill does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tapeline import DeclarationError, Files, HttpPull, OperationError, Pipeline
from tapeline.books.pulls import PullsStatus, read_pulls
from tapeline.connect.json_page import cut
from tapeline.connect.pulling import LaterError
from tapeline.intake.pull import FILES_AHEAD
from tapeline.operate.doctor import Finding
from tapeline.operate.doctor.work import pulls
from tapeline.operate.puller import Puller
from tapeline.serve.feed import Feed
from tapeline.serve.metrics import metrics_of
from tapeline.settings import PullSettings, Settings, SuperviseSettings, load_settings
from tapeline.testing import PULL_CRASH_POINTS, Deployment, plan_of
from tapeline.trades.lines import line
from tapeline.trades.simulator import Day, simulate
from tests.support.back_office import TOKEN, BackOffice
from tests.support.pull_project import PIPELINE, Project

COMMAND = [sys.executable, "-m", "tapeline", "pull", "pipeline.py", "--json"]
DAY = Day(3, date(2026, 11, 13), 100, broken=0.0, corrections=0.05)
TRADES = [line(sent) for sent in simulate(DAY)]
Opened = Callable[..., tuple[BackOffice, Project]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Opens a back office, and makes a project that pulls from it."""
    with ExitStack() as stack:

        def open_office(records: Sequence[bytes] = TRADES, **said: Any) -> Any:
            office = stack.enter_context(BackOffice(records, **said))
            return office, Project(tmp_path, office.address)

        yield open_office


@pytest.mark.parametrize("open_end", [True, False])
def test_every_record_comes_once_and_as_it_was_sent(opened: Opened, open_end: bool) -> None:
    office, here = opened(open_end=open_end)
    (facts,) = here.pull()
    assert here.delivered() == TRADES
    assert facts.records == len(TRADES)
    assert facts.caught_up is True
    here.pull()
    assert here.delivered() == TRADES
    office.records += [b'{"trade_id": "later", "price": 10.10}']
    here.pull()
    assert here.delivered() == office.records


def test_a_last_page_may_grow_and_what_it_had_is_left_out(
    opened: Opened,
) -> None:
    office, here = opened(TRADES[:3])
    for more in (TRADES[3:5], TRADES[5:9], TRADES[9:14], TRADES[14:]):
        here.pull()
        office.records += more
    here.pull()
    assert here.delivered() == TRADES


def test_a_last_page_that_changed_is_refused(opened: Opened) -> None:
    office, here = opened(TRADES[:3])
    here.pull()
    office.records = [TRADES[4], *TRADES[1:4]]
    with pytest.raises(OperationError, match="returned other records than before"):
        here.pull()
    assert here.delivered() == TRADES[:3]


def test_faults_of_server_and_network_lose_and_double_nothing(
    opened: Opened,
) -> None:
    office, here = opened()
    faults = ["500", "429", "cut", "torn", "slow", "repeat"]
    office.faults = [fault for one in faults for fault in ("", one, one)]
    here.pull()
    assert office.faults == []
    assert here.delivered() == TRADES
    said = " ".join(here.said)
    for words in (
        "answered 500",
        "answered 429",
        "no answer",
        "not JSON",
        "returned an earlier page again",
    ):
        assert words in said
    assert office.address.removeprefix("http://") not in said


@pytest.mark.parametrize("point", PULL_CRASH_POINTS)
def test_killed_at_every_point_it_delivers_every_record_once(opened: Opened, point: str) -> None:
    office, here = opened(TRADES[:25])
    for time_of_death, intake_runs in ((1, True), (2, False), (2, True)):
        child = here.process(office.address, f"{point}={time_of_death}")
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        if intake_runs:
            here.take()
        # The same cursor may give more than it gave before the kill.
        office.records = TRADES[: len(office.records) + 9]
    here.pull()
    assert here.delivered() == office.records


def test_killed_at_random_moments_it_delivers_every_record_once(opened: Opened) -> None:
    """While it waits for an answer, or while it works at one: from there on the moment is open."""
    chance = Random(5)
    office, here = opened()
    for _ in range(5):
        last = (len(office.asked) + chance.randint(1, 4), chance.choice(["asked", "answered"]))
        child = here.process(office.address)

        def kill(*now: object, child: Any = child, last: Any = last) -> None:
            if now == last:
                child.kill()

        office.watch = kill
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        if chance.random() < 0.5:
            here.take()
    here.pull()
    assert here.delivered() == TRADES


def test_restored_books_get_again_what_is_in_no_backup(
    opened: Opened,
) -> None:
    """A backup holds what intake has taken, and neither the drop folder nor what came later."""
    office, here = opened(TRADES[:20])
    here.pull()
    here.take()
    office.records = TRADES[:40]
    here.pull()  # one page notices that those before it were taken; these wait
    kept = (here.home / "pull" / "back_office.json").read_bytes()
    in_backup = here.records_taken()
    assert 0 < len(in_backup) < 40
    office.records = TRADES
    here.take()
    here.pull()
    assert here.delivered() == TRADES
    (here.home / "pull" / "back_office.json").write_bytes(kept)
    (here.home / "restored.json").write_text('{"epoch": 2}')
    here.taken.clear()
    here.pull()
    again = here.delivered()
    assert again == TRADES[-len(again) :]
    assert in_backup + again == TRADES
    here.pull()
    assert here.delivered() == again


def test_the_token_comes_from_the_environment_and_is_never_said(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, here = opened(token=TOKEN)
    with pytest.raises(OperationError, match="answered 401"):
        here.pull()
    monkeypatch.setenv("OFFICE_TOKEN", "wrong-token")
    with pytest.raises(OperationError, match="answered 401") as error:
        here.pull(secret_variable="OFFICE_TOKEN")
    assert "wrong-token" not in str(error.value)
    monkeypatch.setenv("OFFICE_TOKEN", TOKEN)
    here.pull(secret_variable="OFFICE_TOKEN")
    assert here.delivered() == TRADES
    kept = b"".join(p.read_bytes() for p in here.folder.rglob("*") if p.is_file())
    assert TOKEN.encode() not in kept


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"answer_bytes": 100}, "returned more than 100 bytes"),
        ({"address": ""}, "has no address"),
        ({"address": "ftp://127.0.0.1"}, "must start with http"),
        ({"address": "http://user:word@127.0.0.1"}, "contains a user name or password"),
        ({"address": "http://192.0.2.1", "secret_variable": "PATH"}, "unencrypted"),
        ({"secret_variable": "NO_SUCH_VARIABLE"}, "is not set"),
    ],
)
def test_what_cannot_work_is_refused_in_words(
    opened: Opened, said: dict[str, object], why: str
) -> None:
    _, here = opened()
    with pytest.raises((DeclarationError, OperationError), match=why):
        here.pull(**said)
    assert here.delivered() == []


def test_a_redirect_is_not_followed(opened: Opened) -> None:
    office, here = opened()
    office.faults = ["elsewhere"]
    with pytest.raises(OperationError, match="Redirects are not followed"):
        here.pull()


@pytest.mark.parametrize(
    ("pull", "why"),
    [
        (HttpPull("/trades", records="rows"), "without a list 'rows'"),
        (HttpPull("/trades", next_cursor="after", records_per_page=7), "without 'after'"),
    ],
)
def test_an_answer_of_another_shape_names_what_was_expected(pull: HttpPull, why: str) -> None:
    with BackOffice(TRADES) as office:
        reader = pull.reader("back_office", PullSettings(address=office.address), "")
        with pytest.raises(OperationError, match=why) as error:
            reader.page(None)
        assert not isinstance(error.value, LaterError)
        reader.close()


def test_records_keep_every_digit_and_byte() -> None:
    first = '{"price": 10.10, "quantity": 0.1234567890123456789, "note": "zwölf, \\u00e9 \\n [}"}'
    answer = cut(f'{{"page": {{"a": [1]}}, "records": [{first}\n, 7, []], "next": 5}}'.encode(),
                 "records", "next")  # fmt: skip
    assert answer.lines == (first.encode(), b"7", b"[]")
    assert answer.next_cursor == "5"


@pytest.mark.parametrize(
    "text", ["", "{", '{"records": [1', '{"records": [1]} x', '{"records" [1]}', "[" * 100_000]
)
def test_what_is_not_json_is_said_to_be_none(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        cut(text.encode(), "records", "next")


def test_another_question_under_the_same_name_is_refused(
    opened: Opened,
) -> None:
    _, here = opened()
    here.pull()
    (here.folder / "pipeline.py").write_text(PIPELINE.replace("/trades", "/orders"))
    with pytest.raises(OperationError, match="is the position of 'GET /trades'"):
        here.pull()


def test_two_processes_cannot_pull_the_same(opened: Opened) -> None:
    _, here = opened()
    with here.collector(), pytest.raises(OperationError, match="is in use"):
        here.pull()
    here.pull()
    assert here.delivered() == TRADES


def test_it_waits_while_the_drop_folder_is_full(opened: Opened) -> None:
    office, here = opened()
    here.drop.mkdir()
    for number in range(FILES_AHEAD):
        (here.drop / f"other-{number}").touch()
    (facts,) = here.pull()
    assert facts.drop_folder_full is True
    assert office.asked == []
    for number in range(FILES_AHEAD):
        (here.drop / f"other-{number}").unlink()
    here.pull()
    assert here.delivered() == TRADES


def test_what_is_out_of_reach_is_tried_again_and_said_wherever_somebody_looks(
    tmp_path: Path,
) -> None:
    with BackOffice([]) as office:
        here = Project(tmp_path, office.address)
    three = SuperviseSettings(attempts=3, max_wait_seconds=0.01)
    with here.collector(supervise=three) as collector:
        collector.run(once=True)
        assert isinstance(collector.failure, LaterError)
        pulled = watched(tmp_path)
        assert (pulled.status.running, pulled.finding.state) == (True, "warning")
        assert 'tapeline_pull_next_timestamp_seconds{pull="back_office"}' in pulled.metrics
    pulled = watched(tmp_path)
    assert pulled.status.running is False
    (one,) = pulled.status.pulls
    assert one.incident is not None
    assert one.incident.attempts == one.failures == 3
    assert "got no answer" in one.incident.error
    assert one.pulled_at is None
    assert str(one.next_at) > str(one.asked_at)
    assert len(here.said) == 3
    assert pulled.finding.state == "error"
    assert "3 failures" in pulled.finding.words
    assert "start 'tapeline pull' again" in pulled.finding.remedy
    assert 'tapeline_pull_failures{pull="back_office"} 3.0' in pulled.metrics
    assert [said["event"] for said in pulled.log] == ["started", *["failed"] * 3, "stopped"]
    assert pulled.log[2]["attempts"] == 2


def test_what_has_come_is_said_wherever_somebody_looks(opened: Opened, tmp_path: Path) -> None:
    _, here = opened(TRADES[:9])
    here.pull()
    pulled = watched(tmp_path)
    (one,) = pulled.status.pulls
    assert one.pulled_at == one.asked_at
    assert (one.failures, one.incident) == (0, None)
    assert pulled.finding.state == "ok"
    assert "9 records so far" in pulled.finding.words
    assert "position: from-7" in pulled.finding.words
    for line_of_metrics in (
        "tapeline_pulling 0.0",
        'tapeline_pull_records_total{pull="back_office"} 9.0',
        'tapeline_pull_caught_up{pull="back_office"} 1.0',
    ):
        assert line_of_metrics in pulled.metrics
    assert [said["event"] for said in pulled.log] == ["started", "pulled", "pulled", "stopped"]
    assert [said["records"] for said in pulled.log[1:3]] == [7, 2]


@dataclass(frozen=True)
class Watched:
    """A pull as its operator sees it."""

    status: PullsStatus
    finding: Finding
    metrics: str
    log: list[dict[str, Any]]


def watched(project: Path) -> Watched:
    settings = load_settings(project, {})
    books = Deployment("pipeline.py", settings).books
    (finding,) = [one for one in pulls(books) if one.what == "pull back_office"]
    metrics = bytes(metrics_of(books, Feed(books, 1)).body).decode()
    log = (books.layout.log / "pull.log").read_text().splitlines()
    return Watched(read_pulls(books.layout), finding, metrics, [json.loads(one) for one in log])


def test_one_system_in_trouble_does_not_hold_up_the_other(tmp_path: Path) -> None:
    with BackOffice(TRADES, token=TOKEN) as closed, BackOffice(TRADES) as office:
        here = Project(tmp_path, closed.address)
        more = PIPELINE.splitlines()[-1].replace("back_office", "front_office")
        (tmp_path / "pipeline.py").write_text(f"{PIPELINE}{more}\n")
        front = {"TAPELINE_PULL_FRONT_OFFICE_ADDRESS": office.address}
        two = SuperviseSettings(attempts=2, max_wait_seconds=0.01)
        every = timedelta(milliseconds=10)
        with here.collector(every, supervise=two, variables=front) as collector:
            collector.run(once=True)
            assert here.delivered() == TRADES
            assert "answered 401" in str(collector.failure)
            collector._say = lambda text: collector.stop() if "Stopped retrying" in text else None
            collector.run()
            back, other = collector.status()
            assert back.incident is not None
            assert back.incident.given_up is True
            assert back.next_at is None
            assert other.incident is None


def test_it_goes_on_by_itself_when_the_system_is_back(opened: Opened) -> None:
    office, here = opened()
    attempts = SuperviseSettings().attempts
    office.faults = ["500"] * 2 * attempts  # others are given up after half as many
    office.retry_after = "0"
    with here.collector(timedelta(hours=1)) as collector:
        collector._say = lambda text: collector.stop() if "works again" in text else None
        collector.run()
        assert collector.failure is None
        assert collector.status()[0].failures == 2 * attempts
    here.pull()
    assert here.delivered() == TRADES


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("120", 120, 120),
        ("Fri, 13 Nov 2099 10:00:00 GMT", 3600, 3600),
        ("86400", 3600, 3600),
        ("soon", 1, 1.5),
        ("-5", 1, 1.5),
        ("nan", 1, 1.5),
    ],
)
def test_it_waits_as_long_as_the_system_asks_for(
    opened: Opened, said: str, least: float, most: float
) -> None:
    office, here = opened()
    office.faults, office.retry_after = ["429"], said
    now = [0.0]
    supervise = SuperviseSettings()
    with here.collector(monotonic=lambda: now[0], supervise=supervise) as collector:
        collector._turn(collector.chores[0])
        (incident,) = collector._supervisor.incidents.values()
        assert least <= incident.retry_at <= most
        now[0] = incident.retry_at - 0.01
        assert not collector._is_due(collector.chores[0])
        now[0] = incident.retry_at
        assert collector._is_due(collector.chores[0])


def test_the_command_prints_facts_and_stops_at_a_signal(opened: Opened) -> None:
    office, here = opened()
    command = [*COMMAND, "--every", "10 milliseconds"]
    caught_up = threading.Event()
    whole = len(TRADES) // 7 + 1
    # Whoever asks for the last page again has delivered it.
    office.watch = lambda number, what: caught_up.set() if number > whole else None
    with subprocess.Popen(command, cwd=here.folder, stdout=subprocess.PIPE, text=True) as child:
        assert caught_up.wait(120)
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    assert here.delivered() == TRADES
    (facts,) = json.loads(out)["pulls"]
    assert (facts["records"], facts["into"]) == (len(TRADES), "raw_trades")
    assert facts["position"].startswith("from-")


def test_a_pull_needs_a_source_that_takes_json(tmp_path: Path) -> None:
    for system, into, schema, why in (
        ("HttpPull('/x')", "raw_trade", 'schema="id string"', "Did you mean 'raw_trades'"),
        ("HttpPull('/x')", "raw_trades", 'format="csv", schema="id string"', "not read them"),
        ("Files('/x')", "raw_trades", 'schema="id string"', "not a system to pull from"),
        ("HttpPull('x')", "raw_trades", 'schema="id string"', "must start with '/'"),
    ):
        (tmp_path / "wrong.py").write_text(
            "from tapeline import Files, HttpPull, Pipeline\n"
            "pipeline = Pipeline('office')\n"
            f"pipeline.source('raw_trades', Files('landing/', {schema}))\n"
            f"pipeline.pull('office', {system}, into='{into}')\n"
        )
        with pytest.raises(DeclarationError, match=why):
            plan_of("wrong.py", Settings(project=tmp_path))


def test_a_pipeline_without_a_pull_says_how_to_declare_one(tmp_path: Path) -> None:
    pipeline = Pipeline("silent")
    pipeline.source("raw", Files("landing/", schema="id string"))
    with pytest.raises(DeclarationError, match=r"pipeline\.pull"):
        Puller(plan_of(pipeline), Settings(project=tmp_path), timedelta(seconds=1), print)
