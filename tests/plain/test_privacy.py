"""Other users of the host cannot read what Tapeline makes, or hold its locks."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tapeline.books import Layout
from tapeline.books.operator import Act, OperatorTape
from tapeline.books.position import Position
from tapeline.books.quarantine import Actor
from tapeline.books.tape import Tape
from tapeline.intake.files import FileIntake, FileRules, IntakeLimits
from tapeline.intake.handover import Handover
from tapeline.operate.control import pause
from tapeline.operate.doctor.places import _privacy
from tapeline.operate.log import Log
from tapeline.settings import LogSettings
from tapeline.store import files as store_files
from tapeline.store.copies import copy_files
from tapeline.store.disk import hold
from tapeline.store.files import make_folder, make_shared_folder, replace_file
from tapeline.store.lock import WriterLock

# Two groups to which this user may give a folder, if there are two.
GROUPS = [0, 1] if os.geteuid() == 0 else sorted({os.getegid(), *os.getgroups()})
NOON = datetime(2026, 11, 13, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def open_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As of a user who shares everything: what we make must be closed all the same."""
    monkeypatch.setattr(store_files, "_callers_umask", [])  # commands of other tests ran in-process
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody can pass through; pytest's own are private."""
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_books_that_a_library_makes_are_for_their_user_alone(tmp_path: Path) -> None:
    home = tmp_path / "root" / "coffee"
    lock = WriterLock(home)
    assert (mode(home.parent), mode(home)) == ("0o700", "0o700")
    assert (mode(home / ".lock"), mode(home / ".lock.jvm")) == ("0o600", "0o600")
    lock.release()


@pytest.mark.parametrize("first", ["pause", "log", "intake", "pull", "operator"])
def test_whoever_comes_first_makes_the_home_private(tmp_path: Path, first: str) -> None:
    home = tmp_path / "root" / "coffee"
    (tmp_path / "drop").mkdir()
    layout = Layout(home)
    if first == "pause":
        pause(layout, Actor(NOON, "somebody", ""))
    elif first == "log":
        Log(layout.log, LogSettings(), lambda: NOON).close()
    elif first == "intake":
        form, limits = FileRules("json"), IntakeLimits()
        tape = Tape(layout, "raw", lambda: NOON)
        FileIntake(tmp_path / "drop", tape, form, limits, lambda: NOON).close()
    elif first == "pull":
        Handover(layout.pull("p"), tmp_path / "new drop", "asks", 0)
        assert mode(tmp_path / "new drop") == "0o777"  # senders write there
    else:
        act = Act("redrive", "sales", Position("raw", 1, 0), 1)
        OperatorTape(layout.operator).add([act], "somebody", NOON)
        assert mode(layout.operator / ".lock") == "0o600"
    assert (mode(home.parent), mode(home)) == ("0o700", "0o700")


def test_a_lock_that_others_could_hold_is_closed(tmp_path: Path) -> None:
    old = tmp_path / ".lock"
    old.touch(mode=0o666)
    os.close(hold(old, "a test"))
    assert mode(old) == "0o600"


def test_a_backup_is_for_its_user_alone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "silver").mkdir(parents=True)
    (source / "silver" / "a.parquet").write_bytes(b"x")
    target = tmp_path / "backups" / "one"
    assert len(list(copy_files(source, target, lambda *_: None))) == 1
    for folder in (target.parent, target, target / "silver"):
        assert mode(folder) == "0o700"


def test_the_doctor_finds_books_that_others_can_read(public: Path) -> None:
    home = public / "the books"
    assert list(_privacy(home)) == []  # nothing is there yet
    home.mkdir()
    for open_to, words in [(0o755, "its group and all other users"), (0o750, "its group"),
                           (0o711, "all other users"), (0o701, "all other users")]:  # fmt: skip
        home.chmod(open_to)
        (found,) = _privacy(home)
        assert found.state == "warning"
        assert words in found.words
        assert found.remedy.endswith(f"chmod 700 '{home}'")
    home.chmod(0o700)
    assert [found.state for found in _privacy(home)] == ["ok"]
    # Where the folder above is of another group, the group passes it as all others do.
    home.chmod(0o750)
    os.chown(public, -1, GROUPS[0])
    os.chown(home, -1, GROUPS[-1])
    public.chmod(0o701)
    found = [one.state for one in _privacy(home)]
    assert found == ["ok" if GROUPS[0] == GROUPS[-1] else "warning"]
    home.chmod(0o755)
    public.chmod(0o700)  # nobody comes that far
    assert [found.state for found in _privacy(home)] == ["ok"]


COMMAND = """
import os, sys
from pathlib import Path
from tapeline.store.files import make_shared_folder, replace_file
from tapeline.cli import app
folder = Path(sys.argv[1])
@app.command()
def writes():
    (folder / "made").write_text("x")
    replace_file(folder / "sent", b"x", shared=True)
    make_shared_folder(folder / "drop" / "below")
app(["writes"])
"""


def test_commands_write_for_their_user_alone_and_share_what_is_for_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        umask=0o022,
    )
    assert done.returncode == 0, done.stderr
    assert mode(tmp_path / "made") == "0o600"
    assert mode(tmp_path / "sent") == "0o644"
    assert mode(tmp_path / "drop") == mode(tmp_path / "drop" / "below") == "0o755"


def test_files_that_a_sink_writes_are_for_whoever_reads_them(tmp_path: Path) -> None:
    make_folder(tmp_path / "ours")
    make_shared_folder(tmp_path / "out")
    replace_file(tmp_path / "out" / "x", b"", shared=True)
    assert (mode(tmp_path / "ours"), mode(tmp_path / "out")) == ("0o700", "0o777")
    assert mode(tmp_path / "out" / "x") == "0o666"
