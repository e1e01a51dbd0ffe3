"""Keeping a pipeline going: pauses, the log, backups of running books and their restoration."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tapeline import OperationError
from tapeline.books.quarantine import Actor
from tapeline.operate import control
from tapeline.operate.backup import BOOKS, MANIFEST, _partial_name, back_up, restore
from tapeline.operate.snapshot import answer_all
from tapeline.settings import LogSettings, Settings
from tapeline.testing import Books, Deployment, commits_of, status_of, unbalanced
from tests.support.counted_words import counted, counts, drop, settings_for
from tests.support.waiting import wait_for

NOW = datetime(2026, 11, 13, 10, tzinfo=UTC)


def books_in(settings: Settings) -> Books:
    return Deployment(counted(), settings).books


def none(done: int, total: int) -> None:
    assert done <= total


def test_a_paused_flow_publishes_nothing_until_resumed_and_the_tape_goes_on(
    tmp_path: Path, spark: Any
) -> None:
    settings = replace(settings_for(tmp_path), log=LogSettings(format="json"))
    books = books_in(settings)
    with Deployment(counted(), settings).running() as runner:
        drop(tmp_path, "a", {"word": "a"})
        wait_for(lambda: counts(books) == {"a": 1})
        control.pause(books.layout, Actor(NOW, "amy", "the auditors are here"))
        assert control.pause(books.layout, Actor(NOW, "bob")).who == "amy"
        # also when there is nothing to do
        wait_for(lambda: status_of(books).paused is not None)
        drop(tmp_path, "b", {"word": "b"})
        wait_for(lambda: runner.tapes["raw"].last_batch == 2)
        assert counts(books) == {"a": 1}
    with (
        Deployment(counted(), settings).runner() as again,  # a restart does not end it
        pytest.raises(OperationError, match=r"PAUSED: amy .*the auditors are here.*resume"),
    ):
        again.run_once()

    def events() -> list[str]:
        lines = (books.layout.log / "run.log").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]

    with Deployment(counted(), settings).running():
        wait_for(lambda: events().count("paused") == 2)
        assert control.resume(books.layout) is not None
        wait_for(lambda: counts(books) == {"a": 1, "b": 1})
    assert control.resume(books.layout) is None
    said = events()
    assert [e for e in said if e in ("paused", "resumed")] == ["paused", "paused", "resumed"]
    assert said[:2] == ["started", "published"]
    assert said[-1] == "stopped"


def test_once_that_is_asked_to_stop_ends_before_all_is_worked_off(
    tmp_path: Path, spark: Any
) -> None:
    settings = settings_for(tmp_path)
    drop(tmp_path, "a", {"word": "a"})
    deployment = Deployment(counted(), settings)
    with deployment.runner() as runner:
        runner.stop()
        assert runner.run_once() == []
        assert runner.stopping
    with deployment.runner() as runner:
        runner.run_once()
        assert not runner.stopping
    assert counts(books_in(settings)) == {"a": 1}


def test_nobody_runs_so_nobody_is_stopped(tmp_path: Path) -> None:
    assert not control.stop(books_in(settings_for(tmp_path)).layout, 1)


def test_the_health_of_a_pipeline_counts_its_starts_and_kills(tmp_path: Path, spark: Any) -> None:
    settings = settings_for(tmp_path)
    path = books_in(settings).layout.status
    deployment = Deployment(counted(), settings)
    for _ in range(2):
        deployment.run_once()
    found = status_of(books_in(settings))
    assert (found.starts, found.kills) == (2, 0)
    killed = {**found.as_dict(), "running": True, "pid": 2**22 + 1}  # as a kill leaves it
    path.write_text(json.dumps(killed))
    deployment.run_once()
    found = status_of(books_in(settings))
    assert (found.starts, found.kills) == (3, 1)


def test_a_backup_of_running_books_is_whole_and_goes_on_after_its_restoration(
    tmp_path: Path, spark: Any
) -> None:
    settings = settings_for(tmp_path)
    books, into = books_in(settings), tmp_path / "backups"
    words = [f"x{number}" for number in range(30)]
    everything = {"a": 2, "b": 1} | dict.fromkeys(words, 1)
    with Deployment(counted(), settings).running():
        drop(tmp_path, "a", {"word": "a"}, {"word": "a", "size": 0})
        wait_for(lambda: counts(books) == {"a": 2})
        writing = threading.Thread(
            target=lambda: [drop(tmp_path, word, {"word": word}) for word in words]
        )
        writing.start()
        folder, made = back_up(books, into, NOW, archives=False, progress=none)
        writing.join()
        drop(tmp_path, "b", {"word": "b"})
        wait_for(lambda: counts(books) == everything)
    assert list(books.layout.snapshots.iterdir()) == []
    # What the backup says of the moment it was taken, from the books that went on.
    then = {row.batch: row.hash for row in commits_of(books)}
    assert then[made.batch] == made.hash
    shutil.move(books.layout.home, tmp_path / "lost")
    restore(books, folder, none)
    with Deployment(counted(), settings).runner() as runner:
        runner.run_once()  # what intake had taken when the picture was made
        found = counts(books)
        assert found["a"] == 2
        assert "b" not in found
        for word in everything.keys() - found.keys():  # what came later is delivered again
            drop(tmp_path, f"{word} again", {"word": word})
        runner.run_once()
    assert counts(books) == everything
    assert unbalanced(books, full=True) == []
    epochs = {row.batch: row.epoch for row in commits_of(books)}
    assert epochs[made.batch] == 1
    assert epochs[made.batch + 1] == 2


@pytest.fixture
def backed_up(tmp_path: Path, spark: Any) -> tuple[Settings, Path]:
    settings = settings_for(tmp_path)
    drop(tmp_path, "a", {"word": "a"})
    Deployment(counted(), settings).run_once()
    folder, _ = back_up(books_in(settings), tmp_path / "backups", NOW, False, none)
    return settings, folder


def test_a_restoration_never_overwrites_and_refuses_what_is_damaged(
    backed_up: tuple[Settings, Path],
) -> None:
    settings, folder = backed_up
    books = books_in(settings)
    with pytest.raises(OperationError, match="never overwrites"):
        restore(books, folder, none)
    shutil.rmtree(books.layout.home)
    with pytest.raises(OperationError, match="is not a backup"):
        restore(books, folder / BOOKS, none)
    piece = next((folder / BOOKS / "silver").rglob("*.parquet"))
    whole = piece.read_bytes()
    piece.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(OperationError, match=f"damaged: silver/words/{piece.name}"):
        restore(books, folder, none)
    assert not books.layout.home.exists()
    piece.write_bytes(whole)
    restore(books, folder, none)
    assert counts(books) == {"a": 1}


KILLED = """
import sys, time
from pathlib import Path
from tapeline.books.layout import Layout
from tapeline.operate.snapshot import one_backup, picture
layout = Layout(Path(sys.argv[1]))
with one_backup(layout):
    picture(layout, archives=False)
    print("taken", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_backup_left_is_removed_by_the_next_one_and_by_a_run(
    backed_up: tuple[Settings, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.operate.snapshot.BACKUP_WAIT_SECONDS", 0.0)
    settings, _ = backed_up
    layout = books_in(settings).layout

    def kill_a_backup() -> None:
        command = [sys.executable, "-c", KILLED, str(layout.home)]
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "taken\n"
            with pytest.raises(OperationError, match="backup is in use: process"):
                back_up(books_in(settings), tmp_path / "more", NOW, False, none)
            assert answer_all(layout, nullcontext) == 0
            assert len(list(layout.snapshots.iterdir())) == 1
            child.kill()

    kill_a_backup()
    assert len(list(layout.snapshots.iterdir())) == 1
    left = tmp_path / "more" / _partial_name(books_in(settings))
    left.mkdir(parents=True)
    folder, _ = back_up(books_in(settings), tmp_path / "more", NOW, False, none)
    assert list(layout.snapshots.iterdir()) == []
    assert list((tmp_path / "more").iterdir()) == [folder]
    kill_a_backup()
    (layout.snapshots / "0.asked").write_text("{}")
    assert answer_all(layout, nullcontext) == 0  # as a run does, again and again
    assert list(layout.snapshots.iterdir()) == []


def test_a_backup_whose_copy_does_not_balance_is_none(
    backed_up: tuple[Settings, Path], tmp_path: Path
) -> None:
    settings, _ = backed_up
    books = books_in(settings)
    journal = next(p for p in books.layout.journal("counts").glob("*.parquet"))
    links = next(p for p in books.layout.links("counts").glob("*.parquet"))
    links.write_bytes(journal.read_bytes())
    with pytest.raises(Exception, match=r"."):
        back_up(books, tmp_path / "others", NOW, False, none)
    assert not [p for p in (tmp_path / "others").iterdir() if (p / MANIFEST).exists()]
    with pytest.raises(OperationError, match="inside the books"):
        back_up(books, books.layout.home / "backups", NOW, False, none)
