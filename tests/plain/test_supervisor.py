"""What failed is tried again later and later, then given up; a person is told each once."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tapeline import DeclarationError, OperationError
from tapeline.books.status import Status, read_status
from tapeline.books.status_file import StatusFile
from tapeline.operate.notify import Notifier
from tapeline.settings import NotifySettings, SuperviseSettings
from tapeline.supervisor import Supervisor, back_off
from tests.support.waiting import wait_for

NOW = datetime(2026, 11, 13, 10, tzinfo=UTC)


class Told(Notifier):
    """Remembers what a person would have been told."""

    def __init__(self) -> None:
        super().__init__(NotifySettings())
        self.messages: list[dict[str, Any]] = []

    def tell(self, message: dict[str, Any]) -> None:
        self.messages.append(message)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_backs_off_gives_up_and_tells_once_each() -> None:
    told, clock = Told(), Clock()
    settings = SuperviseSettings(attempts=4, max_wait_seconds=3.0)
    supervisor = Supervisor("trades", settings, told.tell, lambda: NOW, clock)
    waits = []
    for _ in range(4):
        incident = supervisor.failed("the flow", ValueError("no"), "batch 7")
        waits.append(incident.retry_at - clock.now)
        assert not supervisor.may_try("the flow")
        clock.now = incident.retry_at
    assert waits == [1.0, 2.0, 3.0, 3.0]
    assert not supervisor.may_try("the flow")  # given up
    assert [message["event"] for message in told.messages] == ["began", "given_up"]
    assert "ValueError: no (batch 7)" in told.messages[0]["error"]
    assert supervisor.may_try("intake of raw")  # another part is not concerned


def test_what_is_retried_forever_is_retried_after_days_of_failures_too() -> None:
    told, clock = Told(), Clock()
    settings = SuperviseSettings(attempts=4, max_wait_seconds=60.0)
    supervisor = Supervisor("trades", settings, told.tell, lambda: NOW, clock)
    for _ in range(3_000):  # two days of them; 2.0 ** 1024 is no number
        incident = supervisor.failed("the sink", ValueError("no"), forever=True)
        clock.now = incident.retry_at
    assert incident.retry_at - (clock.now - 60.0) == 60.0
    assert back_off(3_000, 60.0) == 60.0
    assert [back_off(n, 60.0) for n in (1, 2, 3)] == [1.0, 2.0, 4.0]


def test_an_incident_that_is_over_is_told_and_forgotten() -> None:
    told, clock = Told(), Clock()
    supervisor = Supervisor("trades", SuperviseSettings(), told.tell, lambda: NOW, clock)
    supervisor.works("the flow")
    supervisor.failed("the flow", OSError(28, "No space left on device"))
    clock.now = 1.0
    assert supervisor.may_try("the flow")
    supervisor.works("the flow")
    assert [message["event"] for message in told.messages] == ["began", "over"]
    assert "DISK_FULL" in told.messages[0]["error"]
    supervisor.failed("the flow", OperationError("again"))
    assert told.messages[-1]["event"] == "began"


def test_a_command_gets_the_message_on_its_input(tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')")
    told = tmp_path / "told"
    notifier = Notifier(
        NotifySettings(command=shlex.join([sys.executable, str(script), str(told)]))
    )
    notifier.tell({"event": "began", "part": "the flow; rm -rf /"})
    notifier.close()
    assert json.loads(told.read_text()) == {"event": "began", "part": "the flow; rm -rf /"}


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any], list[int]]]:
    """A server that answers with the given codes, then 200, and keeps what it got."""
    got: list[Any] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = answers.pop(0) if answers else 200
            if code == 200:
                got.append(json.loads(body))
            self.send_response(code)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook?secret=s3cret", got, answers
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_webhook_that_is_down_gets_the_message_later(
    webhook: tuple[str, list[Any], list[int]],
) -> None:
    address, got, answers = webhook
    answers += [500, 302]  # whoever follows a redirect loses the message
    notifier = Notifier(NotifySettings(webhook=address))
    notifier.tell({"event": "began"})
    notifier.tell({"event": "over"})
    wait_for(lambda: notifier.problem is not None)
    assert "s3cret" not in str(notifier.problem)
    wait_for(lambda: len(got) == 2)
    assert [message["event"] for message in got] == ["began", "over"]
    wait_for(lambda: notifier.problem is None)
    notifier.close()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"notify\.webhook"):
        Notifier(NotifySettings(webhook="file:///etc/passwd"))


def test_a_status_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    flow = SimpleNamespace(
        plan=SimpleNamespace(name="p"), tapes={}, backlog=SimpleNamespace(position={}, largest=0),
        acts_waiting=0, published_batch=1, published_at=None, room=SimpleNamespace(records=1),
    )  # fmt: skip
    status = StatusFile(tmp_path / "gone" / "status.json", NOW)
    status.write(flow, None, running=True, now=NOW)
    assert read_status(tmp_path / "gone" / "status.json") is None
    (tmp_path / "gone").mkdir()
    status.write(flow, None, running=True, now=NOW + timedelta(seconds=1))
    found = read_status(tmp_path / "gone" / "status.json")
    assert found is not None
    assert found.batch == 1


def test_a_process_that_is_dead_and_not_waited_for_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_text(json.dumps({"running": True, "pid": os.getpid()}))
    assert (read_status(path) or Status()).running
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still listed
    path.write_text(json.dumps({"running": True, "pid": child.pid}))
    assert not (read_status(path) or Status()).running
    child.wait()
