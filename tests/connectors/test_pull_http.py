"""Pulling from an HTTP API: every record once, whatever the server, the network or a kill does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random

import pytest

from tapeline import DeclarationError, Files, HttpPull, OperationError, Pipeline
from tapeline.connect.answers import cut
from tapeline.connect.pulling import LaterError
from tapeline.plan import load_pipeline, resolve
from tapeline.run.collector import FILES_AHEAD, Collector
from tapeline.run.failpoints import PULL_POINTS
from tapeline.settings import PullSettings, Settings, SuperviseSettings, load_settings
from tapeline.trades.lines import line
from tapeline.trades.simulator import Day, simulate
from tapeline.watch.status import read_status
from tests.back_office import TOKEN, BackOffice

PIPELINE = """
from tapeline import Files, HttpPull, Pipeline

pipeline = Pipeline("office")
pipeline.source("raw_trades", Files("landing/", schema="trade_id string"))
pipeline.pull("back_office", HttpPull("/trades", records_per_page=7), into="raw_trades")
"""
COMMAND = [sys.executable, "-m", "tapeline", "pull", "pipeline.py", "--json"]
DAY = Day(3, date(2026, 11, 13), 100, broken=0.0, corrections=0.05)
TRADES = [line(sent) for sent in simulate(DAY)]


class Project:
    """A project whose pipeline pulls from a back office."""

    def __init__(self, folder: Path, office: BackOffice) -> None:
        self.folder = folder
        self.drop = folder / "landing"
        self.taken: list[tuple[str, bytes]] = []
        self.said: list[str] = []
        (folder / "pipeline.py").write_text(PIPELINE)
        (folder / "tapeline.toml").write_text(
            f"[pull.back_office]\naddress = '{office.address}'\ntimeout_seconds = 0.5\n"
            "[supervise]\nmax_wait_seconds = 0.05\n"
        )

    def collector(self, **pulling: object) -> Collector:
        settings = load_settings(self.folder, {})
        if pulling:
            said = settings.pull["back_office"]
            settings = replace(settings, pull={"back_office": replace(said, **pulling)})
        plan = resolve(load_pipeline("pipeline.py", settings))
        return Collector(plan, settings, timedelta(seconds=1), self.said.append)

    def pull(self, **pulling: object) -> list[dict[str, object]]:
        with self.collector(**pulling) as collector:
            collector.run(once=True)
            if collector.failure:
                raise collector.failure
            return collector.facts()

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, "--once"],
            cwd=self.folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def take(self) -> None:
        """What intake does: whole files leave the folder, in order of name."""
        for path in sorted(self.drop.glob("[!.]*")):
            self.taken.append((path.name, path.read_bytes()))
            path.unlink()

    def delivered(self) -> list[bytes]:
        self.take()
        return self.records_taken()

    def records_taken(self) -> list[bytes]:
        return [record for _, content in self.taken for record in content.splitlines()]


@pytest.fixture
def project(tmp_path: Path) -> Callable[[BackOffice], Project]:
    return lambda office: Project(tmp_path, office)


@pytest.mark.parametrize("open_end", [True, False])
def test_every_record_comes_once_and_as_it_was_sent(
    project: Callable[[BackOffice], Project], open_end: bool
) -> None:
    with BackOffice(TRADES, open_end) as office:
        here = project(office)
        (facts,) = here.pull()
        assert here.delivered() == TRADES
        assert facts["records"] == len(TRADES)
        assert facts["caught_up"] is True
        here.pull()
        assert here.delivered() == TRADES
        office.records += [b'{"trade_id": "later", "price": 10.10}']
        here.pull()
        assert here.delivered() == office.records


def test_a_last_page_may_grow_and_what_it_had_is_left_out(
    project: Callable[[BackOffice], Project],
) -> None:
    with BackOffice(TRADES[:3]) as office:
        here = project(office)
        for more in (TRADES[3:5], TRADES[5:9], TRADES[9:14], TRADES[14:]):
            here.pull()
            office.records += more
        here.pull()
        assert here.delivered() == TRADES


def test_a_last_page_that_changed_is_refused(project: Callable[[BackOffice], Project]) -> None:
    with BackOffice(TRADES[:3]) as office:
        here = project(office)
        here.pull()
        office.records = [TRADES[4], *TRADES[1:4]]
        with pytest.raises(OperationError, match="gave other records than before"):
            here.pull()
        assert here.delivered() == TRADES[:3]


def test_faults_of_server_and_network_lose_and_double_nothing(
    project: Callable[[BackOffice], Project],
) -> None:
    with BackOffice(TRADES) as office:
        here = project(office)
        faults = ["500", "429", "cut", "torn", "slow", "repeat"]
        office.faults = [fault for one in faults for fault in ("", one, one)]
        here.pull()
        assert office.faults == []
        assert here.delivered() == TRADES
        said = " ".join(here.said)
        for words in (
            "answered 500",
            "answered 429",
            "not answered",
            "not JSON",
            "gave a page again",
        ):
            assert words in said
        assert office.address.removeprefix("http://") not in said


@pytest.mark.parametrize("point", PULL_POINTS)
def test_killed_at_every_point_it_delivers_every_record_once(
    project: Callable[[BackOffice], Project], point: str
) -> None:
    with BackOffice(TRADES[:25]) as office:
        here = project(office)
        for time_of_death, intake_runs in ((1, True), (2, False), (2, True)):
            child = here.start(TAPELINE_FAILPOINTS=f"{point}={time_of_death}")
            child.communicate(timeout=60)
            assert child.returncode == -signal.SIGKILL
            if intake_runs:
                here.take()
            # The same cursor may give more than it gave before the kill.
            office.records = TRADES[: len(office.records) + 9]
        here.pull()
        assert here.delivered() == office.records


def test_killed_at_random_moments_it_delivers_every_record_once(
    project: Callable[[BackOffice], Project],
) -> None:
    chance = Random(5)
    with BackOffice(TRADES) as office:
        office.pause_seconds = 0.02
        here = project(office)
        for _ in range(5):
            wanted = len(office.asked) + chance.randint(1, 4)
            child = here.start()
            while len(office.asked) < wanted and child.poll() is None:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.02)
            child.kill()
            child.communicate()
            if chance.random() < 0.5:
                here.take()
        here.pull()
        assert here.delivered() == TRADES


def test_restored_books_get_again_what_is_in_no_backup(
    project: Callable[[BackOffice], Project],
) -> None:
    """A backup holds what intake has taken, and neither the drop folder nor what came later."""
    with BackOffice(TRADES[:20]) as office:
        here = project(office)
        here.pull()
        here.take()
        office.records = TRADES[:40]
        here.pull()  # one page notices that those before it were taken; these wait
        home = here.folder / "tapeline-data" / "office"
        kept = (home / "pull" / "back_office.json").read_bytes()
        in_backup = here.records_taken()
        assert 0 < len(in_backup) < 40
        office.records = TRADES
        here.take()
        here.pull()
        assert here.delivered() == TRADES
        (home / "pull" / "back_office.json").write_bytes(kept)
        (home / "restored.json").write_text('{"epoch": 2}')
        here.taken.clear()
        here.pull()
        again = here.delivered()
        assert again == TRADES[-len(again) :]
        assert in_backup + again == TRADES
        here.pull()
        assert here.delivered() == again


def test_the_token_comes_from_the_environment_and_is_never_said(
    project: Callable[[BackOffice], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    with BackOffice(TRADES, token=TOKEN) as office:
        here = project(office)
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
        ({"answer_bytes": 100}, "gave more than 100 bytes"),
        ({"address": ""}, "has no address"),
        ({"address": "ftp://127.0.0.1"}, "must start with http"),
        ({"address": "http://user:word@127.0.0.1"}, "holds a name or password"),
        ({"address": "http://192.0.2.1", "secret_variable": "PATH"}, "in the clear"),
        ({"secret_variable": "NO_SUCH_VARIABLE"}, "is not set"),
    ],
)
def test_what_cannot_work_is_refused_in_words(
    project: Callable[[BackOffice], Project], said: dict[str, object], why: str
) -> None:
    with BackOffice(TRADES) as office:
        here = project(office)
        with pytest.raises((DeclarationError, OperationError), match=why):
            here.pull(**said)
        assert here.delivered() == []


def test_a_redirect_is_not_followed(project: Callable[[BackOffice], Project]) -> None:
    with BackOffice(TRADES) as office:
        here = project(office)
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
    project: Callable[[BackOffice], Project],
) -> None:
    with BackOffice(TRADES) as office:
        here = project(office)
        here.pull()
        (here.folder / "pipeline.py").write_text(PIPELINE.replace("/trades", "/orders"))
        with pytest.raises(OperationError, match="is the position of 'GET /trades'"):
            here.pull()


def test_two_processes_cannot_pull_the_same(project: Callable[[BackOffice], Project]) -> None:
    with BackOffice(TRADES) as office:
        here = project(office)
        with here.collector(), pytest.raises(OperationError, match="is in use"):
            here.pull()
        here.pull()
        assert here.delivered() == TRADES


def test_it_waits_while_the_drop_folder_is_full(project: Callable[[BackOffice], Project]) -> None:
    with BackOffice(TRADES) as office:
        here = project(office)
        here.drop.mkdir()
        for number in range(FILES_AHEAD):
            (here.drop / f"other-{number}").touch()
        (facts,) = here.pull()
        assert facts["drop_folder_full"] is True
        assert office.asked == []
        for number in range(FILES_AHEAD):
            (here.drop / f"other-{number}").unlink()
        here.pull()
        assert here.delivered() == TRADES


def test_what_is_out_of_reach_is_tried_again_and_said_in_the_status(tmp_path: Path) -> None:
    with BackOffice([]) as office:
        here = Project(tmp_path, office)
    settings = load_settings(tmp_path, {"TAPELINE_SUPERVISE_ATTEMPTS": "3"})
    plan = resolve(load_pipeline("pipeline.py", settings))
    with Collector(plan, settings, timedelta(seconds=1), here.said.append) as collector:
        collector.run(once=True)
        assert isinstance(collector.failure, LaterError)
    status = read_status(tmp_path / "tapeline-data" / "office" / "pulling.json")
    assert status is not None
    assert status["running"] is False
    (one,) = status["pulls"]
    assert one["incident"]["attempts"] == 3
    assert "was not answered" in one["incident"]["error"]
    assert len(here.said) == 3


def test_one_system_in_trouble_does_not_hold_up_the_other(tmp_path: Path) -> None:
    with BackOffice(TRADES, token=TOKEN) as closed, BackOffice(TRADES) as office:
        here = Project(tmp_path, closed)
        more = PIPELINE.splitlines()[-1].replace("back_office", "front_office")
        (tmp_path / "pipeline.py").write_text(f"{PIPELINE}{more}\n")
        variables = {
            "TAPELINE_PULL_FRONT_OFFICE_ADDRESS": office.address,
            "TAPELINE_SUPERVISE_ATTEMPTS": "2",
        }
        settings = load_settings(tmp_path, variables)
        plan = resolve(load_pipeline("pipeline.py", settings))
        with Collector(plan, settings, timedelta(milliseconds=10), here.said.append) as collector:
            collector.run(once=True)
            assert here.delivered() == TRADES
            assert "answered 401" in str(collector.failure)
            collector._say = lambda text: collector.stop() if "given up" in text else None
            collector.run()
            back, front = collector.facts()
            assert back["incident"]["given_up"] is True
            assert front["incident"] is None


def test_it_goes_on_by_itself_when_the_system_is_back(tmp_path: Path) -> None:
    with BackOffice(TRADES) as office:
        here = Project(tmp_path, office)
        office.faults = ["500"] * 30  # more than the attempts after which others are given up
        settings = load_settings(tmp_path, {})
        assert settings.supervise == SuperviseSettings(max_wait_seconds=0.05)
        plan = resolve(load_pipeline("pipeline.py", settings))
        with Collector(plan, settings, timedelta(hours=1), here.said.append) as collector:
            collector._say = lambda text: collector.stop() if "works again" in text else None
            collector.run()
            assert collector.failure is None
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
    tmp_path: Path, said: str, least: float, most: float
) -> None:
    with BackOffice(TRADES) as office:
        here = Project(tmp_path, office)
        office.faults, office.retry_after = ["429"], said
        settings = replace(load_settings(tmp_path, {}), supervise=SuperviseSettings())
        plan = resolve(load_pipeline("pipeline.py", settings))
        now = [0.0]
        second = timedelta(seconds=1)
        with Collector(plan, settings, second, here.said.append, lambda: now[0]) as collector:
            collector._turn(collector.chores[0])
            (incident,) = collector._supervisor.incidents.values()
            assert least <= incident.retry_at <= most
            now[0] = incident.retry_at - 0.01
            assert not collector._is_due(collector.chores[0])
            now[0] = incident.retry_at
            assert collector._is_due(collector.chores[0])


def test_the_command_prints_facts_and_stops_at_a_signal(
    project: Callable[[BackOffice], Project],
) -> None:
    with BackOffice(TRADES) as office:
        here = project(office)
        child = subprocess.Popen(
            [*COMMAND, "--every", "1 hour"], cwd=here.folder, stdout=subprocess.PIPE, text=True
        )
        while not here.drop.exists() or len(here.delivered()) < len(TRADES):
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=20)
        assert child.returncode == 0
        (facts,) = json.loads(out)["pulls"]
        assert (facts["records"], facts["into"]) == (len(TRADES), "raw_trades")
        assert facts["position"].startswith("from-")


def test_a_pull_needs_a_source_that_takes_json(tmp_path: Path) -> None:
    for system, into, schema, why in (
        ("HttpPull('/x')", "raw_trade", 'schema="id string"', "Did you mean 'raw_trades'"),
        ("HttpPull('/x')", "raw_trades", 'format="csv", schema="id string"', "not take them"),
        ("Files('/x')", "raw_trades", 'schema="id string"', "cannot be asked"),
        ("HttpPull('x')", "raw_trades", 'schema="id string"', "must start with '/'"),
    ):
        (tmp_path / "wrong.py").write_text(
            "from tapeline import Files, HttpPull, Pipeline\n"
            "pipeline = Pipeline('office')\n"
            f"pipeline.source('raw_trades', Files('landing/', {schema}))\n"
            f"pipeline.pull('office', {system}, into='{into}')\n"
        )
        with pytest.raises(DeclarationError, match=why):
            resolve(load_pipeline("wrong.py", Settings(project=tmp_path)))


def test_a_pipeline_without_a_pull_says_how_to_declare_one(tmp_path: Path) -> None:
    pipeline = Pipeline("silent")
    pipeline.source("raw", Files("landing/", schema="id string"))
    with pytest.raises(DeclarationError, match=r"pipeline\.pull"):
        Collector(resolve(pipeline), Settings(project=tmp_path), timedelta(seconds=1), print)
