"""Killed at any step, intake still delivers every line exactly once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest

from tapeline.errors import OperationError
from tapeline.intake.files import FileRules
from tapeline.store import delta_files
from tests.support.intake_desk import Desk

# All that changes a disk, but for writing into files that are not in their place yet.
STEPS = ("rename", "replace", "link", "unlink", "mkdir", "rmdir", "fsync")
LARGE = [b"large %d" % number for number in range(5)]
EXPECTED = [b"first", b"second", *LARGE, b"manifested", b"packed", b"next day"]


class KilledError(BaseException):
    """The process died: nothing may catch this."""


class Power:
    """Lets so many steps happen, then none any more."""

    def __init__(self, monkeypatch, steps: int | None = None) -> None:
        self.left = steps
        self.used = 0
        self._patch = monkeypatch
        for name in STEPS:
            monkeypatch.setattr(os, name, self._limited(getattr(os, name)))

    def _limited(self, real):
        def step(*arguments, **options):
            if self.left is not None and self.used >= self.left:
                raise KilledError
            self.used += 1
            return real(*arguments, **options)

        return step


def send_everything(desk: Desk) -> None:
    desk.send("1.json", b"first\n")
    desk.send("2.json", b"second\n")
    desk.send("3.json", gzip.compress(b"bad\n" * 50)[:-3])
    desk.send("4.json", b"\n".join(LARGE))
    (desk.drop / "5.json.manifest").write_text('{"rows": 1}')
    os.link(desk.send("5.json", b"manifested\n"), desk.root / "second_name")
    desk.send("6.json", gzip.compress(b"packed\n"))


def append(desk: Desk) -> None:
    """After the file was taken, its sender appends to it by another name."""
    other = desk.root / "second_name"
    if not (desk.drop / "5.json").exists() and other.stat().st_size == len(b"manifested\n"):
        with other.open("ab") as file:
            file.write(b"appended\n")


def work(desk: Desk) -> None:
    """Two days of intake's life, with an append and the same name again in between."""
    append(desk)
    desk.take()
    append(desk)
    desk.run()
    if not (desk.root / "sent").exists():
        desk.send("1.json", b"next day\n")
        (desk.root / "sent").write_bytes(b"")
    for _ in range(3):
        desk.seconds += 1
        desk.run()


def desk_at(path) -> Desk:
    path.mkdir()
    desk = Desk(path, records_per_piece=2)
    send_everything(desk)
    return desk


def check(desk: Desk, appended: bool = True) -> None:
    assert Counter(desk.lines()) == Counter([*EXPECTED, b"appended"] if appended else EXPECTED)
    parts = [part for facts in desk.facts for part in facts.deliveries]
    complete = [part.delivery for part in parts if part.complete]
    assert complete == list(range(1, 8 if appended else 7))
    assert [part.delivery for part in parts] == sorted(part.delivery for part in parts)
    assert sorted(desk.kept("archive")) == complete
    assert desk.kept("archive")[1] == b"first\n"
    assert list(desk.kept("rejected").values()) == [gzip.compress(b"bad\n" * 50, mtime=0)[:-3]]
    for folder in ("taken", "work", "staged"):
        assert list((desk.home / folder).iterdir()) == []
    archived = [json.loads(path.read_text()) for path in (desk.home / "archive").rglob("*.json")]
    assert sorted(note["delivery"] for note in archived) == complete
    assert desk.intake.waiting() == (0, 0)


@pytest.fixture(autouse=True)
def quick_disk_and_same_gzip_bytes(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test here pulls the plug
    real = gzip.compress
    monkeypatch.setattr(gzip, "compress", lambda data, level=9, mtime=0: real(data, level, mtime=0))


def another_file_system(monkeypatch) -> None:
    real = os.rename

    def rename(source, target, *, src_dir_fd=None, dst_dir_fd=None):
        if src_dir_fd is not None:
            raise OSError(18, "Invalid cross-device link")
        return real(source, target)

    monkeypatch.setattr(os, "rename", rename)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("distant", [False, True])
def test_killed_at_every_step_each_line_is_delivered_exactly_once(
    tmp_path, monkeypatch, every, distant
):
    if distant:
        another_file_system(monkeypatch)

    def run(path, steps):
        desk = desk_at(path)
        with monkeypatch.context() as patch:
            power = Power(patch, steps)
            try:
                work(desk)
            except KilledError:
                return desk, steps
        return desk, power.used

    desk, all_steps = run(tmp_path / "all", None)
    check(desk, appended=not distant)
    for steps in range(0, all_steps, every):
        desk, _ = run(tmp_path / str(steps), steps)
        desk.start()
        work(desk)
        check(desk, appended=not distant)
        desk.intake.close()


@pytest.mark.parametrize("step", STEPS)
def test_an_error_of_the_disk_stops_a_pass_and_the_next_one_goes_on(tmp_path, monkeypatch, step):
    """The process lives on."""
    for count in range(12):
        desk = desk_at(tmp_path / f"{count}")
        desk.start()
        with monkeypatch.context() as patch:
            fail_once(patch, step, count)
            for _ in range(3):
                with suppress(OperationError):
                    work(desk)
        work(desk)
        check(desk)
        desk.intake.close()


def fail_once(patch, step: str, count: int) -> None:
    real, calls = getattr(os, step), []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == count + 1:
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    patch.setattr(os, step, failing)


def test_numbers_go_on_from_what_is_on_the_tape(tmp_path):
    desk = Desk(tmp_path)
    desk.send("a.json", b"1\n")
    desk.run()
    desk.start()
    desk.send("b.json", b"2\n")
    assert desk.run() == [b"1", b"2"]
    assert [record["part"] for record in desk.tape] == [1, 2]
    assert [record["delivery"] for record in desk.tape] == [1, 2]


def test_a_lost_note_costs_a_name_and_never_a_record(tmp_path, monkeypatch):
    desk = Desk(tmp_path)
    desk.send("a.json", b"1\n")
    with monkeypatch.context() as patch:
        patch.setattr("tapeline.intake.files.FileIntake._read_original", lambda self, note: None)
        desk.take()
    (note,) = (desk.home / "taken").glob("*.json")
    note.write_text("")
    desk.start()
    assert desk.run() == [b"1"]
    assert "lost" in desk.facts[0].deliveries[0].name
    assert desk.kept("archive") == {1: b"1\n"}


def test_an_archived_original_is_never_overwritten(tmp_path):
    desk = Desk(tmp_path, FileRules("json"))
    desk.send("a.json", b"1\n")
    desk.run()
    shutil.rmtree(desk.layout.home / "bronze")  # somebody has deleted the tape, not the archive
    delta_files._followed.clear()  # as in a new process
    desk.start()
    desk.send("a.json", b"2\n")
    desk.run()
    assert desk.kept("archive") == {1: b"1\n"}
    assert desk.kept("taken") == {1: b"2\n"}
    assert desk.kinds() == ["ARCHIVE"]


SERVE = """
import sys
from datetime import datetime, timezone
from pathlib import Path
from tapeline.books.layout import Layout
from tapeline.books.tape import Tape
from tapeline.intake.files import FileIntake, FileRules, IntakeLimits
drop, books = Path(sys.argv[1]), Path(sys.argv[2])
limits = IntakeLimits(records_per_piece=50, settle_seconds=0)
now = lambda: datetime.now(timezone.utc)
tape = Tape(Layout(books), "raw", now)
intake = FileIntake(drop, tape, FileRules("json"), limits, now)
intake.recover()
print("up", flush=True)
while True:
    intake.take()
"""


@pytest.mark.slow
def test_killed_for_real_again_and_again_each_line_is_delivered_exactly_once(tmp_path):
    desk = Desk(tmp_path)
    sent = []
    for number in range(12):
        for part in range(40):
            lines = [b"%d %d %d" % (number, part, line) for line in range(part * 5)]
            desk.send(f"{number:02d}-{part:02d}.json", b"\n".join(lines))
            sent += lines
        arguments = [str(desk.drop), str(desk.layout.home)]
        with subprocess.Popen(
            [sys.executable, "-c", SERVE, *arguments], stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            time.sleep(0.005 * number)
            process.send_signal(signal.SIGKILL)
    desk.start()
    desk.run()
    desk.run()
    assert Counter(desk.lines()) == Counter(sent)
